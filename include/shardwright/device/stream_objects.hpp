// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Handles, workspaces and plans of libraries that a thread keeps for the streams of its devices.

#include <shardwright/core/config.hpp>

#include <memory>
#include <utility>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// Objects by stream and type. A rank's thread owns those of its streams, so nothing is locked; they end with
/// their stream or, if nobody says when that is, with the thread.
class StreamObjects {
public:
  /// @brief A stream of a device; handles of different devices may be equal.
  struct Stream {
    const void* handle;
    int device;

    friend bool operator==(const Stream&, const Stream&) = default;
  };

  /// @brief The calling thread's.
  [[nodiscard]] static StreamObjects& own() {
    static thread_local StreamObjects objects;
    return objects;
  }

  /// @brief The object of a type for a stream; `make()` makes a std::shared_ptr<Object> at the first call.
  template <class Object, class Make> [[nodiscard]] Object& of(Stream stream, const Make& make) {
    for (const Known& known : known_)
      if (known.type == &identity<Object> && known.stream == stream)
        return *static_cast<Object*>(known.object.get());
    std::shared_ptr<Object> made = make();
    known_.push_back({&identity<Object>, stream, made});
    return *made;
  }

  /// @brief Ends the objects of a stream, which is about to be destroyed.
  void end(Stream stream) noexcept {
    std::erase_if(known_, [stream](const Known& known) { return known.stream == stream; });
  }

private:
  template <class Object> static constexpr char identity = 0;
  struct Known {
    const char* type; // the address of its identity
    Stream stream;
    std::shared_ptr<void> object;
  };
  std::vector<Known> known_;
};

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
