"""The model's files."""

from __future__ import annotations

from actors.diagnosis.rule import Rule, Weight, words
from orchestrator.outcome import Label, Phase

RULES = (
    Rule(
        "files_missing_and_offline",
        Label.MODEL_MISSING,
        words(
            r"Cannot find the requested files in the (?:disk cache|local cache) and outgoing traffic has been disabled"
            r"|Cannot reach \S+: offline mode is enabled"
        ),
        "huggingface_hub.errors.LocalEntryNotFoundError: Cannot find the requested files in the disk cache "
        "and outgoing "
        "traffic has been disabled.",
        means="the model is not on this host, and downloads are switched off",
        usual=Phase.ARGS,
        source="huggingface_hub",
    ),
    Rule(
        "hub_unreachable",
        Label.MODEL_DOWNLOAD,
        words(
            r"An error happened while trying to locate the files? on the Hub|We couldn't connect to '\S+' to load"
            r"|Connection error, and we cannot find the requested files"
            r"|.{0,60}Max retries exceeded with url: \S*(?:/resolve/|/api/models/)"
            r"|Consistency check failed: file should be of size|.{0,80}Error while downloading from https?://"
            r"|Data processing error: CAS service error|(?:Distant resource does not|Cannot) (?:seem to be on"
            r"|access) (?:huggingface\.co|the hub)"
        ),
        "huggingface_hub.utils._errors.LocalEntryNotFoundError: An error happened while trying to locate the files on "
        "the Hub and we cannot find the appropriate snapshot folder for the specified revision on the local disk.",
        means="the model hub could not be reached, or the download broke",
        usual=Phase.ARGS,
        source="huggingface_hub",
    ),
    Rule(
        "hub_connection_failed",
        Label.MODEL_DOWNLOAD,
        words(
            r".{0,40}HTTPS?ConnectionPool\(host='(?:\S*huggingface|\S*hf-mirror|\S*modelscope)"
            r"|.{0,80}(?:429|5\d\d) (?:Client|Server) Error.{0,120}(?:/resolve/|/api/(?:v1/)?models/)"
            r"|\(ProtocolError\('Connection aborted.{0,160}Request ID: |.{0,60}thrown while requesting (?:HEAD|GET) "
            r"|.{0,60}Temporary failure in name resolution"
        ),
        "requests.exceptions.ConnectionError: (MaxRetryError(\"HTTPSConnectionPool(host='huggingface.co', "
        "port=443): Max "
        "retries exceeded",
        weight=Weight.HINT,
        means="a request to the model hub failed; it is tried again, so a later line may tell more",
        usual=Phase.ARGS,
        source="huggingface_hub",
    ),
    Rule(
        "no_such_model",
        Label.MODEL_MISSING,
        words(
            r"\S+ is not a local folder and is not a valid model identifier|(?:Incorrect path_or_model_id|Repo id must)"
            r"|(?:[\w.]+\.)?(?:RepositoryNotFoundError|GatedRepoError|RevisionNotFoundError|HFValidationError)\b"
            r"|.{0,60}(?:Repository Not Found for url|(?:Cannot access|trying to access) a? ?gated repo)"
            r"|40[134] Client Error.{0,120}(?:/resolve/|/api/models/)"
        ),
        "OSError: org/model is not a local folder and is not a valid model identifier listed on "
        "'https://huggingface.co/models'",
        means="there is no model of that name or path, or it is gated",
        advice=("check the model's path as the server's process sees it (mounts), and HF_TOKEN for a gated model",),
        usual=Phase.ARGS,
        source="transformers",
    ),
    Rule(
        "model_file_missing",
        Label.MODEL_MISSING,
        words(
            r"\S+ does not appear to have (?:a file|files) named|Cannot find any model weights"
            r"|Cannot find (?:any .{0,30}weights|the config file for)|Error no file named|Unable to load weights from"
            r"|(?:\w+ )?model path \S+ does not exist|\[Errno 20\] Not a directory: .{0,300}(?:\.json|safetensors)"
            r"|Unrecognized model in \S+ Should have a `model_type` key"
            r"|(?:\[Errno 2\] )?No such file or directory: .{0,300}(?:config\.json|safetensors|\.bin|\.gguf|tokenizer)"
            r"|(?:No|Could not find any) (?:safetensors|weights?|\.pt) files? (?:found )?(?:in|at|with)"
            r"|.{0,80}(?:Error while deserializing header|incomplete metadata, file not fully covered|HeaderTooLarge"
            r"|MetadataIncompleteBuffer|InvalidHeaderDeserialization)|(?:Can't"
            r"|Unable to) load (?:the )?(?:tokenizer|config"
            r"|configuration)\b"
        ),
        "RuntimeError: Cannot find any model weights with `/models/m`",
        means="the folder is there, but files in it are missing or cut off",
        usual=Phase.WEIGHTS,
        source="SGLang, transformers, safetensors",
    ),
)
