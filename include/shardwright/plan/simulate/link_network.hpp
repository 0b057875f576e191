// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Transfers that share links, each at its max-min fair speed.

#include <shardwright/core/config.hpp>
#include <shardwright/plan/simulate/event_queue.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief The fraction of a link that a transfer uses at full speed.
struct LinkUse {
  int link = 0;
  double share = 0; ///< Of the link's nominal bandwidth, above 0.
};

/// @brief Links and the transfers on them.
///
/// The speed of a transfer is 1 if it runs as if alone on healthy links. The speeds of all transfers are
/// max-min fair: they rise together until a link is full; transfers on it keep their speed, and the others
/// rise further (progressive filling: Bertsekas and Gallager, "Data Networks", second edition, section
/// 6.5.2). A link with room for all of its transfers at full speed limits none, so only transfers connected
/// by full links are considered.
class LinkNetwork {
public:
  /// @param contended whether transfers share links; otherwise each has its links to itself.
  LinkNetwork(EventQueue& events, bool contended) : events_(events), contended_(contended) {}

  /// @brief Adds a link of a given capacity, 1 for a healthy one; returns its number.
  int add_link(double capacity) {
    links_.push_back({capacity, 0, {}, 0});
    return static_cast<int>(links_.size()) - 1;
  }

  /// @brief Begins a transfer that takes `seconds` at full speed; returns its number. An event marks its end.
  int begin(double now, double seconds, std::vector<LinkUse> uses) {
    int number = static_cast<int>(transfers_.size());
    if (free_.empty()) {
      transfers_.emplace_back();
    } else {
      number = free_.back();
      free_.pop_back();
    }
    Transfer& one = transfers_[static_cast<std::size_t>(number)];
    one.left = seconds;
    one.since = now;
    one.speed = 1;
    one.uses = std::move(uses);
    if (!contended_) {
      for (const LinkUse& use : one.uses)
        one.speed = std::min(one.speed, link(use).capacity / use.share);
      predict(number, now);
      return number;
    }
    for (const LinkUse& use : one.uses) {
      link(use).load += use.share;
      link(use).transfers.push_back(number);
    }
    predict(number, now);
    touch(one.uses);
    share_among(now);
    return number;
  }

  /// @brief Ends the transfer of an event; returns whether it did. Superseded predictions stay in the queue
  /// and have no effect.
  bool end(const SimulationEvent& event) {
    Transfer& one = transfers_[static_cast<std::size_t>(event.subject)];
    if (one.version != event.version)
      return false;
    ++one.version;
    if (contended_) {
      touch(one.uses);
      for (const LinkUse& use : one.uses) {
        std::vector<int>& on = link(use).transfers;
        on.erase(std::find(on.begin(), on.end(), event.subject));
        link(use).load = on.empty() ? 0 : link(use).load - use.share;
      }
      share_among(event.time);
    }
    free_.push_back(event.subject);
    return true;
  }

private:
  struct Link {
    double capacity = 1;
    double load = 0; ///< Shares of all its transfers at full speed.
    std::vector<int> transfers{};
    std::uint64_t seen = 0;
    double room = 0,
           weight = 0; ///< While speeds are computed: capacity left, and the shares competing for it.
  };
  struct Transfer {
    double left = 0; ///< Seconds at full speed.
    double since = 0;
    double speed = 1;
    std::uint32_t version = 0;
    std::vector<LinkUse> uses{};
    std::uint64_t seen = 0;
    double fair = 0;
  };

  [[nodiscard]] Link& link(const LinkUse& use) { return links_[static_cast<std::size_t>(use.link)]; }
  [[nodiscard]] static bool full(const Link& link) { return link.load > link.capacity * (1 + 1e-9); }

  void predict(int number, double now) {
    const Transfer& one = transfers_[static_cast<std::size_t>(number)];
    events_.add(now + one.left / one.speed, number, true, one.version);
  }

  /// Remembers which of these links are full.
  void touch(const std::vector<LinkUse>& uses) {
    touched_.clear();
    for (const LinkUse& use : uses)
      if (full(link(use)))
        touched_.push_back(use.link);
  }

  /// Divides the capacity of full links among all transfers connected to the touched links through them.
  void share_among(double now) {
    if (touched_.empty())
      return;
    ++round_;
    joined_.clear();
    reached_.clear();
    for (const int number : touched_)
      reach(number);
    for (std::size_t i = 0; i < reached_.size(); ++i)
      for (const int number : links_[static_cast<std::size_t>(reached_[i])].transfers) {
        Transfer& one = transfers_[static_cast<std::size_t>(number)];
        if (one.seen == round_)
          continue;
        one.seen = round_;
        one.fair = -1;
        joined_.push_back(number);
        for (const LinkUse& use : one.uses)
          if (full(link(use)))
            reach(use.link);
      }
    fill();
    for (const int number : joined_) {
      Transfer& one = transfers_[static_cast<std::size_t>(number)];
      if (one.fair == one.speed)
        continue;
      one.left = std::max(0.0, one.left - (now - one.since) * one.speed);
      one.since = now;
      one.speed = one.fair;
      ++one.version;
      predict(number, now);
    }
  }
  void reach(int number) {
    Link& one = links_[static_cast<std::size_t>(number)];
    if (one.seen == round_)
      return;
    one.seen = round_;
    one.room = one.capacity;
    one.weight = one.load;
    reached_.push_back(number);
  }

  void fill() {
    for (std::size_t left = joined_.size(); left > 0;) {
      double speed = 1;
      for (const int number : reached_) {
        const Link& one = links_[static_cast<std::size_t>(number)];
        if (one.weight > 1e-12)
          speed = std::min(speed, one.room / one.weight);
      }
      const std::size_t before = left;
      for (const int number : joined_) {
        Transfer& one = transfers_[static_cast<std::size_t>(number)];
        if (one.fair >= 0 || (speed < 1 && !stays(one, speed)))
          continue;
        one.fair = speed;
        --left;
      }
      if (left == before) // only by rounding
        for (const int number : joined_)
          if (Transfer& one = transfers_[static_cast<std::size_t>(number)]; one.fair < 0)
            one.fair = speed, --left;
      for (const int number : reached_) {
        Link& one = links_[static_cast<std::size_t>(number)];
        one.room = one.capacity;
        one.weight = 0;
      }
      for (const int number : joined_) {
        const Transfer& one = transfers_[static_cast<std::size_t>(number)];
        for (const LinkUse& use : one.uses)
          if (link(use).seen == round_)
            (one.fair >= 0 ? link(use).room : link(use).weight) +=
                one.fair >= 0 ? -use.share * one.fair : use.share;
      }
    }
  }
  /// Whether one of the links of a transfer is full at this speed.
  [[nodiscard]] bool stays(const Transfer& one, double speed) {
    return std::any_of(one.uses.begin(), one.uses.end(), [&](const LinkUse& use) {
      const Link& on = link(use);
      return on.seen == round_ && on.weight > 1e-12 && on.room / on.weight <= speed * (1 + 1e-12);
    });
  }

  EventQueue& events_;
  bool contended_;
  std::vector<Link> links_;
  std::vector<Transfer> transfers_;
  std::vector<int> free_, joined_, reached_, touched_;
  std::uint64_t round_ = 0;
};

} // namespace shardwright::inline SHARDWRIGHT_ABI
