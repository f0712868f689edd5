"""What a server answers about itself without being asked to generate, and who may ask."""

from __future__ import annotations

import pytest

from tests.contract.divergence import MODEL_INFO_KEYS
from tests.contract.servers import Server

MODEL_INFO = {
    "model_path": ".sglang-cpu/models/target",
    "served_model_name": ".sglang-cpu/models/target",
    "tokenizer_path": ".sglang-cpu/models/target",
    "is_generation": True,
    "preferred_sampling_params": None,
    "weight_version": "default",
    "load_format": "dummy",
    "reasoning_parser": None,
    "tool_call_parser": None,
    "disaggregation_mode": "null",
    "has_image_understanding": False,
    "has_audio_understanding": False,
}


@pytest.mark.parametrize("path", ["/health", "/health_generate", "/ready"])
def test_a_ready_server_is_healthy_and_says_nothing_else(server: Server, path: str) -> None:
    answer = server.call("GET", path)
    assert (answer.status, answer.text) == (200, "")


def test_before_it_is_ready_the_port_answers_503(server: Server) -> None:
    assert server.early == {"/ready": 503, "/health": 503}


@pytest.mark.parametrize("path", ["/model_info", "/get_model_info"])
def test_model_info(server: Server, path: str) -> None:
    info = server.call("GET", path).json
    assert {key: info[key] for key in MODEL_INFO} == MODEL_INFO
    assert isinstance(info["model_type"], str)
    assert isinstance(info["architectures"][0], str)
    assert set(info) - MODEL_INFO_KEYS == {*MODEL_INFO, "model_type", "architectures"}


def test_old_paths_still_answer_and_warn(server: Server) -> None:
    for old, new in (("/get_model_info", "/model_info"), ("/get_server_info", "/server_info")):
        assert server.call("GET", old).status == 200
        server.wait_for(
            f"Endpoint '{old}' is deprecated and will be removed in a future version. Please use '{new}' instead."
        )


def test_models(server: Server) -> None:
    answer = server.call("GET", "/v1/models").json
    model = answer["data"][0]
    assert isinstance(model.pop("created"), int)
    assert answer == {"object": "list", "data": [model]}
    assert model == {
        "id": ".sglang-cpu/models/target",
        "object": "model",
        "owned_by": "sglang",
        "root": ".sglang-cpu/models/target",
        "parent": None,
        "max_model_len": 4096,
    }


def test_a_model_by_name(server: Server) -> None:
    missing = server.call("GET", "/v1/models/x")
    assert missing.status == 404
    assert missing.json == {
        "error": {
            "message": "The model 'x' does not exist",
            "type": "invalid_request_error",
            "param": "model",
            "code": "model_not_found",
        }
    }


@pytest.mark.parametrize(
    ("method", "path", "status", "detail", "allow"),
    [
        ("GET", "/nosuch", 404, "Not Found", None),
        ("GET", "/get_load", 404, "Not Found", None),
        ("GET", "/generate", 405, "Method Not Allowed", "POST, PUT"),
        ("POST", "/health", 405, "Method Not Allowed", "GET"),
        ("GET", "/v1/completions", 405, "Method Not Allowed", "POST"),
    ],
)
def test_unknown_paths_and_methods(
    server: Server, method: str, path: str, status: int, detail: str, allow: str | None
) -> None:
    answer = server.call(method, path)
    assert (answer.status, answer.json) == (status, {"detail": detail})
    # The order of several methods is not fixed.
    assert sorted((answer.headers.get("allow") or "").split(", ")) == sorted((allow or "").split(", "))


def test_headers_are_uvicorns(server: Server) -> None:
    headers = server.call("GET", "/v1/models").headers
    assert headers["server"] == "uvicorn"
    assert headers["content-type"] == "application/json"
    assert "date" in headers


@pytest.mark.variants("plain")
class TestWithKeys:
    """The plain variant was started with --api-key and --admin-api-key."""

    @pytest.mark.parametrize(
        "headers",
        [
            {},
            {"Authorization": "Bearer wrong"},
            {"Authorization": "sk-contract"},
            {"Authorization": "Basic sk-contract"},
            {"x-api-key": "sk-contract"},
        ],
    )
    @pytest.mark.parametrize("path", ["/v1/models", "/server_info", "/nosuch", "/"])
    def test_other_than_bearer_is_refused(self, server: Server, path: str, headers: dict[str, str]) -> None:
        answer = server.call("GET", path, headers=headers)
        assert (answer.status, answer.json) == (401, {"error": "Unauthorized"})

    @pytest.mark.parametrize("scheme", ["Bearer", "bearer"])
    def test_bearer_is_let_in(self, server: Server, scheme: str) -> None:
        assert server.call("GET", "/v1/models", headers={"Authorization": f"{scheme} sk-contract"}).status == 200

    @pytest.mark.parametrize("path", ["/health", "/health_generate", "/ready", "/metrics"])
    def test_open_paths_need_no_key(self, server: Server, path: str) -> None:
        assert server.call("GET", path, headers={}).status == 200

    @pytest.mark.parametrize(
        "path", ["/flush_cache", "/abort_request", "/freeze_gc", "/start_profile", "/stop_profile"]
    )
    def test_admin_paths_need_the_admin_key(self, server: Server, path: str) -> None:
        answer = server.call("POST", path, {}, headers={"Authorization": "Bearer sk-contract"})
        assert (answer.status, answer.json) == (401, {"error": "Unauthorized"})
        assert server.call("POST", "/freeze_gc", admin=True).status == 200


@pytest.mark.variants("eagle", "standalone", "ngram")
def test_without_keys_everything_is_open(server: Server) -> None:
    assert server.call("GET", "/v1/models", headers={"Authorization": "Bearer anything"}).status == 200
    assert server.call("POST", "/freeze_gc", headers={}).status == 200
