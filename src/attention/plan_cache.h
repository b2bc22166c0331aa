#pragma once
// Plans by request key: bounded, least recently used goes first, safe from many threads.

#include "attnscope/attention.h"

#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>

namespace attnscope {

class PlanCache {
 public:
  explicit PlanCache(size_t capacity) : capacity_(capacity) {}
  std::shared_ptr<const Plan> find(const std::string& key);
  // Keeps the plan that is there already when two threads made the same one; returns the kept one.
  std::shared_ptr<const Plan> insert(const std::string& key, std::shared_ptr<const Plan> plan);
  size_t size() const;
  size_t capacity() const { return capacity_; }
  void clear();

 private:
  using Entry = std::pair<std::string, std::shared_ptr<const Plan>>;
  size_t capacity_;
  mutable std::mutex mutex_;
  std::list<Entry> entries_;  // most recently used first
  std::unordered_map<std::string_view, std::list<Entry>::iterator> index_;
};

// The one that plan() and sdpa() use.
PlanCache& plan_cache();

}  // namespace attnscope
