"""Pure-torch stand-in for the CPU build of sgl_kernel (SGLang 0.5.23).

Only what a tiny Llama/Qwen2 on `SGLANG_USE_CPU_ENGINE=1` touches: attention (the
`intel_amx` backend's two ops), the speculative-decoding index helpers, kv copy.
It deliberately defines NO `convert_weight_packed`, so cpu_has_amx_support() is False and
every layer takes its forward_native path.
"""
import torch

__version__ = "0.0.0+stub"
_lib = torch.library.Library("sgl_kernel", "FRAGMENT")


# ---------------------------------------------------------------- attention
def _sdpa(q, k, v, scale, cap, mask):
    # q [H,Lq,D] k,v [Hkv,Lk,D]
    rep = q.shape[0] // k.shape[0]
    if rep > 1:
        k, v = k.repeat_interleave(rep, 0), v.repeat_interleave(rep, 0)
    s = torch.matmul(q.float(), k.float().transpose(1, 2)) * scale
    if cap:
        s = cap * torch.tanh(s / cap)
    if mask is not None:
        s = s.masked_fill(~mask, float("-inf"))
    return torch.matmul(torch.softmax(s, -1), v.float())


def _decode_attention(q, k_buf, v_buf, k_scale, v_scale, out, k, v, loc, attn_logits, req_to_token,
                      req_pool_indices, seq_lens, scale, cap, cross, window, encoder_lens, sinks):
    if k is not None:
        k_buf[loc.long()] = k.reshape(-1, *k_buf.shape[1:]).to(k_buf.dtype)
        v_buf[loc.long()] = v.reshape(-1, *v_buf.shape[1:]).to(v_buf.dtype)
    for i in range(seq_lens.shape[0]):
        t = req_to_token[req_pool_indices[i], : int(seq_lens[i])].long()
        o = _sdpa(q[i].unsqueeze(1), k_buf[t].transpose(0, 1), v_buf[t].transpose(0, 1), scale, cap, None)
        out[i] = o.squeeze(1).to(out.dtype)


def _extend_attention(q, k, v, out, k_buf, v_buf, k_scale, v_scale, req_to_token, req_pool_indices,
                      seq_lens, extend_seq_lens, extend_start_loc, max_len_extend, scale, cap, cross,
                      window, encoder_lens, sinks, tree_mask, is_causal):
    bs = seq_lens.shape[0]
    for i in range(bs):
        s, n, L = int(extend_start_loc[i]), int(extend_seq_lens[i]), int(seq_lens[i])
        if n == 0:
            continue
        t = req_to_token[req_pool_indices[i], :L].long()
        pre = L - n
        m = None
        if tree_mask is not None:                       # QLEN_ONLY: [bs, n, n]
            tm = tree_mask.view(bs, n, n)[i].bool()
            m = torch.cat([torch.ones(n, pre, dtype=torch.bool), tm], 1).unsqueeze(0)
        elif is_causal:
            m = (torch.arange(L)[None, :] <= (pre + torch.arange(n))[:, None]).unsqueeze(0)
        o = _sdpa(q[s:s + n].transpose(0, 1), k_buf[t].transpose(0, 1), v_buf[t].transpose(0, 1), scale, cap, m)
        out[s:s + n] = o.transpose(0, 1).to(out.dtype)


_lib.define("decode_attention_cpu(Tensor q, Tensor(a!) kb, Tensor(b!) vb, float ks, float vs, Tensor(c!) out, "
            "Tensor? k, Tensor? v, Tensor? loc, Tensor logits, Tensor r2t, Tensor rpi, Tensor sl, float scale, "
            "float cap, bool cross, int window, Tensor? enc, Tensor? sinks) -> ()")
_lib.impl("decode_attention_cpu", _decode_attention, "CPU")
_lib.define("extend_attention_cpu(Tensor q, Tensor? k, Tensor? v, Tensor(a!) out, Tensor kb, Tensor vb, float ks, "
            "float vs, Tensor r2t, Tensor rpi, Tensor sl, Tensor esl, Tensor est, int mle, float scale, float cap, "
            "bool cross, int window, Tensor? enc, Tensor? sinks, Tensor? mask, bool causal) -> ()")
_lib.impl("extend_attention_cpu", _extend_attention, "CPU")


# ---------------------------------------------------------------- kv copy
def copy_all_layer_kv_cache_cpu(data_ptrs, strides, tgt_loc, src_loc):
    import ctypes
    if tgt_loc.numel() == 0:
        return
    for p, st in zip(data_ptrs.tolist(), strides.tolist()):
        rows = [ctypes.string_at(p + int(s) * st, st) for s in src_loc.tolist()]
        for d, r in zip(tgt_loc.tolist(), rows):
            ctypes.memmove(p + int(d) * st, r, st)


# ---------------------------------------------------------------- speculative index helpers
def assign_req_to_token_pool_cpu(req_pool_indices, req_to_token, start, end, out_cache_loc, pool_len):
    o = 0
    for r, s, e in zip(req_pool_indices.tolist(), start.tolist(), end.tolist()):
        req_to_token[r, s:e] = out_cache_loc[o:o + e - s].to(req_to_token.dtype)
        o += e - s


def assign_extend_cache_locs_cpu(req_pool_indices, req_to_token, start, end, out_cache_loc, pool_len):
    o = 0
    for r, s, e in zip(req_pool_indices.tolist(), start.tolist(), end.tolist()):
        out_cache_loc[o:o + e - s] = req_to_token[r, s:e].to(out_cache_loc.dtype)
        o += e - s


def assign_draft_cache_locs_contiguous_cpu(req_pool_indices, req_to_token, seq_lens, out_cache_loc, pool_len, topk, num_steps):
    n = topk * num_steps
    for i, (r, s) in enumerate(zip(req_pool_indices.tolist(), seq_lens.tolist())):
        out_cache_loc[i * n:(i + 1) * n] = req_to_token[r, s:s + n].to(out_cache_loc.dtype)


def build_draft_decode_metadata_cpu(req_to_token, req_pool_indices, seq_lens, topk, num_steps, pool_len):
    bs = seq_lens.shape[0]
    out = torch.zeros((bs * topk, pool_len), dtype=req_to_token.dtype)
    for i in range(bs):
        L, row = int(seq_lens[i]), req_to_token[req_pool_indices[i]]
        for k in range(topk):
            out[i * topk + k, :L] = row[:L]
            seg = row[L + k * num_steps: L + (k + 1) * num_steps]
            out[i * topk + k, L:L + seg.shape[0]] = seg
    return out


def fill_bonus_tokens_cpu(accept_tokens, accept_lens, bonus_tokens, accept_stride):
    bs = bonus_tokens.shape[0]
    idx = torch.arange(bs) * accept_stride + accept_lens[:bs].long() - 1
    bonus_tokens.copy_(accept_tokens.reshape(-1)[idx].to(bonus_tokens.dtype))


def fill_accept_out_cache_loc_cpu(accept_index, out_cache_loc, accept_out_cache_loc):
    a = accept_index.reshape(-1)
    a = a[a > -1].long()
    accept_out_cache_loc[: a.numel()] = out_cache_loc[a].to(accept_out_cache_loc.dtype)


def rotate_input_ids_cpu(input_ids, extend_start_loc, extend_seq_lens, topk_index, select_index=None):
    for i, (s, n) in enumerate(zip(extend_start_loc.tolist(), extend_seq_lens.tolist())):
        if n <= 0:
            continue
        input_ids[s:s + n - 1] = input_ids[s + 1:s + n].clone()
        pos = int(select_index[i]) if select_index is not None else s + n - 1
        input_ids[pos] = topk_index.reshape(-1)[i].to(input_ids.dtype)


def build_tree_kernel_efficient_cpu(parent_list, selected_index, verified_seq_len, tree_mask, positions,
                                    retrive_index, retrive_next_token, retrive_next_sibling,
                                    topk, depth, draft_token_num, tree_mask_mode):
    """Chains only (topk 1): node i follows node i - 1, stands at position L + i and sees nodes 0..i.

    tree_mask_mode 0 keeps a row of L + n booleans per node (prefix first), other modes a row of n.
    """
    if topk != 1:
        raise NotImplementedError("this stand-in builds chains only: use --speculative-eagle-topk 1")
    bs, n = verified_seq_len.shape[0], draft_token_num
    nodes = torch.arange(n)
    retrive_index.copy_(torch.arange(bs * n).view(bs, n))
    retrive_next_token.copy_(torch.where(nodes < n - 1, nodes + 1, -1).expand(bs, n))
    retrive_next_sibling.fill_(-1)
    positions.copy_((verified_seq_len.view(bs, 1) + nodes).reshape(-1))
    sees = torch.ones(n, n, dtype=torch.bool).tril()
    if tree_mask_mode == 0:
        rows = [torch.cat([torch.ones(n, int(length), dtype=torch.bool), sees], 1).reshape(-1) for length in verified_seq_len]
        mask = torch.cat(rows)
    else:
        mask = sees.reshape(-1).repeat(bs)
    tree_mask.view(-1)[: mask.numel()] = mask.to(tree_mask.dtype)


def verify_tree_greedy_cpu(predicts, accept_index, accept_token_num, candidates, retrive_index,
                           retrive_next_token, retrive_next_sibling, target_predict):
    """Greedy acceptance by its definition: from the root, go to the child that carries the token which the
    target model predicts at the present node, until no child does; every node on that path is accepted."""
    predicted = target_predict.reshape(-1)
    for request in range(candidates.shape[0]):
        def children(node):
            child = int(retrive_next_token[request, node])
            while child >= 0:
                yield child
                child = int(retrive_next_sibling[request, child])

        def slot(node):
            return int(retrive_index[request, node])

        path = [0]
        while len(path) < accept_index.shape[1]:
            wanted = int(predicted[slot(path[-1])])
            follower = next((c for c in children(path[-1]) if int(candidates[request, c]) == wanted), None)
            if follower is None:
                break
            path.append(follower)
        for level, node in enumerate(path):
            accept_index[request, level] = slot(node)
            predicts[slot(node)] = predicted[slot(node)].to(predicts.dtype)
        accept_token_num[request] = len(path) - 1


# names imported unconditionally somewhere; never called on this path
def __getattr__(name):
    if name.startswith("__"):
        raise AttributeError(name)
    def missing(*a, **k):
        raise NotImplementedError(f"sgl_kernel stub: {name} called")
    missing.__name__ = name
    return missing
