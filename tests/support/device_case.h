#pragma once
// An AttentionCase on a GPU: the same request over copies of its tensors, results brought back to the host
// views.

#include "cuda/device_tensor.h"
#include "cuda/stream.h"
#include "support/attention_case.h"

#include <stdexcept>

namespace attnscope::testing {

class DeviceCase {
 public:
  explicit DeviceCase(AttentionCase& host, int device = 0)
      : host_(host), stream_(must(cuda::Stream::create(device))) {
    const Request& h = host.request();
    request_ = h;
    auto move = [&](const TensorView& from, TensorView& to) {
      if (from.data == nullptr) return;
      tensors_.push_back(must(cuda::DeviceTensor::copy_of(from, device, stream_.get())));
      to = tensors_.back().view();
    };
    tensors_.reserve(12);
    move(h.q, request_.q);
    move(h.k, request_.k);
    move(h.v, request_.v);
    if (h.mask_kind != MaskKind::kNone) move(h.mask, request_.mask);
    move(h.lengths.kv_lengths, request_.lengths.kv_lengths);
    move(h.lengths.cu_q, request_.lengths.cu_q);
    move(h.lengths.cu_k, request_.lengths.cu_k);
    move(h.sinks, request_.sinks);
    move(h.alibi_slopes, request_.alibi_slopes);
    move(h.paging.block_table, request_.paging.block_table);
    move(h.paging.append_k, request_.paging.append_k);
    move(h.paging.append_v, request_.paging.append_v);
    host.out().poison();
    host.lse().poison();
    out_ = must(cuda::DeviceTensor::copy_of(host.out().view(), device, stream_.get()));
    lse_ = must(cuda::DeviceTensor::copy_of(host.lse().view(), device, stream_.get()));
  }
  const Request& request() const { return request_; }
  Outputs outputs() const {
    Outputs o;
    o.out = out_.view();
    if (request_.wants.lse) o.lse = lse_.view();
    return o;
  }
  cudaStream_t stream() const { return stream_.get(); }
  RunOptions options() const {
    RunOptions o;
    o.stream = stream_.get();
    return o;
  }
  // Brings out and lse back into the host case's views; waits for the stream.
  Status fetch() {
    ATTNSCOPE_TRY(out_.copy_to(host_.out().view(), stream_.get()));
    return lse_.copy_to(host_.lse().view(), stream_.get());
  }
  void poison_outputs() {
    must(out_.fill_bytes(0xff, stream_.get()));
    must(lse_.fill_bytes(0xff, stream_.get()));
  }

  template <typename T>
  static T must(Result<T> result) {
    if (!result) throw std::runtime_error(result.error().message);
    if constexpr (!std::is_void_v<T>) return std::move(*result);
  }

 private:
  AttentionCase& host_;
  cuda::Stream stream_;
  std::vector<cuda::DeviceTensor> tensors_;
  cuda::DeviceTensor out_, lse_;
  Request request_;
};

}  // namespace attnscope::testing
