// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The order of the calls of one MPI group on one rank.

#include <shardwright/comm/mpi/operation.hpp>
#include <shardwright/comm/validate.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// Collectives move one after another; messages side by side, save those of one direction, peer and tag.
///
/// Records of calls are used again, so a steady sequence of calls allocates nothing.
class MpiQueue final : public MpiEngine {
public:
  explicit MpiQueue(MpiGroup& group) : group_(group) {}
  MpiQueue(const MpiQueue&) = delete;
  MpiQueue& operator=(const MpiQueue&) = delete;
  ~MpiQueue() override { group_.world().detach(this); }

  /// Checks a call, takes it into the order, and moves it as far as it goes.
  MpiOperation& begin(const CollectiveCall& call) {
    const bool message = sends_or_receives(call.operation);
    std::uint64_t& last = message ? messages_begun_ : collectives_begun_;
    const MpiCallSite site = group_.site(call, last + 1);
    group_.require_alive(site);
    validate(call, group_, last + 1);
    if (message && (call.tag < 0 || call.tag >= group_.world().user_tags()))
      throw InvalidArgument(std::string(name_of(call.operation)) + ": the tag must be at least 0 and below " +
                                std::to_string(group_.world().user_tags()) + ", but it is " +
                                std::to_string(call.tag) + " (MPI has no more tags)",
                            site.context());
    MpiOperation& operation = unused();
    operation.begin(call, ++last);
    if (idle())
      group_.world().attach(this);
    (message ? messages_ : collectives_).push_back(&operation);
    progress();
    return operation;
  }

  bool progress() noexcept override {
    if (idle())
      return false;
    bool moved = false;
    while (!collectives_.empty()) {
      moved = (!collectives_.front()->done() && collectives_.front()->advance()) || moved;
      if (!collectives_.front()->done())
        break;
      collectives_.erase(collectives_.begin());
    }
    for (std::size_t i = 0; i < messages_.size();) {
      if (!messages_[i]->done() && first_of_its_kind(i))
        moved = messages_[i]->advance() || moved;
      if (messages_[i]->done())
        messages_.erase(messages_.begin() + static_cast<std::ptrdiff_t>(i));
      else
        ++i;
    }
    if (idle())
      group_.world().detach(this);
    return moved;
  }

private:
  [[nodiscard]] bool idle() const noexcept { return collectives_.empty() && messages_.empty(); }

  [[nodiscard]] MpiOperation& unused() {
    for (const auto& one : all_)
      if (one->done() && !one->in_use())
        return *one;
    return *all_.emplace_back(std::make_unique<MpiOperation>(group_));
  }

  /// MPI matches messages of one peer and tag in the order of posting, so each is posted after the one before
  /// has ended.
  [[nodiscard]] bool first_of_its_kind(std::size_t index) const noexcept {
    const CollectiveCall& own = messages_[index]->call();
    for (std::size_t i = 0; i < index; ++i) {
      const CollectiveCall& other = messages_[i]->call();
      if (other.operation == own.operation && other.root == own.root && other.tag == own.tag)
        return false;
    }
    return true;
  }

  MpiGroup& group_;
  std::uint64_t collectives_begun_ = 0;
  std::uint64_t messages_begun_ = 0;
  std::vector<std::unique_ptr<MpiOperation>> all_;
  std::vector<MpiOperation*> collectives_; ///< In order; only the first moves.
  std::vector<MpiOperation*> messages_;
};

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
