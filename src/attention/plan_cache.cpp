#include "attention/plan_cache.h"

namespace attnscope {

std::shared_ptr<const Plan> PlanCache::find(const std::string& key) {
  const std::lock_guard lock(mutex_);
  const auto it = index_.find(key);
  if (it == index_.end()) return nullptr;
  entries_.splice(entries_.begin(), entries_, it->second);
  return it->second->second;
}

std::shared_ptr<const Plan> PlanCache::insert(const std::string& key, std::shared_ptr<const Plan> plan) {
  const std::lock_guard lock(mutex_);
  if (const auto it = index_.find(key); it != index_.end()) return it->second->second;
  entries_.emplace_front(key, std::move(plan));
  index_.emplace(entries_.front().first, entries_.begin());
  const auto kept = entries_.front().second;
  while (entries_.size() > capacity_) {
    index_.erase(entries_.back().first);
    entries_.pop_back();
  }
  return kept;
}

size_t PlanCache::size() const {
  const std::lock_guard lock(mutex_);
  return entries_.size();
}

void PlanCache::clear() {
  const std::lock_guard lock(mutex_);
  index_.clear();
  entries_.clear();
}

PlanCache& plan_cache() {
  static PlanCache cache(256);
  return cache;
}

}  // namespace attnscope
