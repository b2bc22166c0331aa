// The functions of attnscope.h: conversion, one fence against exceptions, and the error of the thread.
#include "capi/convert.h"
#include "capi/fence.h"
#include "capi/places.h"

#include <nlohmann/json.hpp>

#include <cstring>

using namespace attnscope;

struct attnscope_plan {  // NOLINT(readability-identifier-naming): a name of the C ABI
  std::shared_ptr<const Plan> plan;
  std::string backend;
  std::string description;
};

extern "C" {

void attnscope_request_init(attnscope_request* request) {
  if (!request) return;
  std::memset(request, 0, sizeof(*request));
  request->struct_size = sizeof(*request);
  request->window_left = request->window_right = -1;
}

const char* attnscope_version(void) {
  return ATTNSCOPE_VERSION;
}
uint32_t attnscope_abi_version(void) {
  return ATTNSCOPE_ABI_VERSION;
}
const char* attnscope_error_message(void) {
  return capi::last_error().message.c_str();
}
const char* attnscope_error_remedy(void) {
  return capi::last_error().remedy.c_str();
}
void attnscope_free(char* text) {
  std::free(text);
}

int attnscope_sdpa(const attnscope_request* request, const char* backends, const attnscope_tensor* out,
                   const attnscope_tensor* lse, void* stream) {
  return capi::fenced([&]() -> Status {
    ATTNSCOPE_ASSIGN(const Request r, capi::to_request(request));
    ATTNSCOPE_ASSIGN(const Outputs o, capi::to_outputs(out, lse));
    ATTNSCOPE_TRY(capi::check_places(r, o));
    RunOptions options;
    options.stream = stream;
    return sdpa(r, o, capi::to_choice(backends), options);
  });
}

int attnscope_plan_create(const attnscope_request* request, const char* backends, attnscope_plan** result) {
  return capi::fenced([&]() -> Status {
    if (!result) return fail(ErrorCode::kInvalidArgument, "nowhere to put the plan");
    *result = nullptr;
    ATTNSCOPE_ASSIGN(const Request r, capi::to_request(request));
    ATTNSCOPE_TRY(capi::check_places(r, {}));
    ATTNSCOPE_ASSIGN(auto made, plan(r, capi::to_choice(backends)));
    auto handle = std::make_unique<attnscope_plan>();
    handle->backend = made->backend_name();
    handle->description = made->describe();
    handle->plan = std::move(made);
    *result = handle.release();
    return {};
  });
}

void attnscope_plan_destroy(attnscope_plan* plan) {
  delete plan;
}
const char* attnscope_plan_backend(const attnscope_plan* plan) {
  return plan ? plan->backend.c_str() : "";
}
const char* attnscope_plan_describe(const attnscope_plan* plan) {
  return plan ? plan->description.c_str() : "";
}
size_t attnscope_plan_workspace_bytes(const attnscope_plan* plan) {
  return plan ? plan->plan->workspace_bytes() : 0;
}

int attnscope_plan_run(const attnscope_plan* plan, const attnscope_request* request,
                       const attnscope_tensor* out, const attnscope_tensor* lse, void* stream,
                       void* workspace, size_t workspace_bytes) {
  return capi::fenced([&]() -> Status {
    if (!plan) return fail(ErrorCode::kInvalidArgument, "no plan was given");
    ATTNSCOPE_ASSIGN(const Request r, capi::to_request(request));
    ATTNSCOPE_ASSIGN(const Outputs o, capi::to_outputs(out, lse));
    RunOptions options;
    options.stream = stream;
    options.workspace = workspace;
    options.workspace_bytes = workspace_bytes;
    return run(*plan->plan, r, o, options);
  });
}

int attnscope_choose(const attnscope_request* request, const char* backends, char** json) {
  return capi::fenced([&]() -> Status {
    ATTNSCOPE_ASSIGN(const Request r, capi::to_request(request));
    const Decision decision = choose(r, capi::to_choice(backends));
    nlohmann::json refusals = nlohmann::json::array();
    for (const Refusal& refusal : decision.refusals)
      refusals.push_back({{"backend", refusal.backend},
                          {"code", refusal.code},
                          {"message", refusal.message},
                          {"remedy", refusal.remedy}});
    return capi::give_text(
        json,
        nlohmann::json{{"winner", decision.winner_name}, {"why", decision.why}, {"refusals", refusals}}.dump(
            -1, ' ', false, nlohmann::json::error_handler_t::replace));  // names are the caller's
  });
}

int attnscope_backends(char** json) {
  return capi::fenced([&]() -> Status {
    nlohmann::json list = nlohmann::json::array();
    for (const BackendInfo& info : backends())
      list.push_back({{"name", info.name},
                      {"description", info.description},
                      {"device", info.device == DeviceType::kCpu ? "cpu" : "cuda"},
                      {"available", info.available},
                      {"why_not", info.why_not}});
    return capi::give_text(json, list.dump());
  });
}

}  // extern "C"
