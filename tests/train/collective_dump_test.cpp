// What ranks write of their collectives when a run fails, on ranks as threads and under mpirun.

#include <libtrain/train/detail/collective_dump.hpp>

#include <stdlib.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <numeric>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include <libtrain/base/clock.hpp>
#include <libtrain/base/detail/machine.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/comm/host_transport.hpp>
#include <libtrain/train/detail/run_id.hpp>

#include <tests/support/device.hpp>
#include <tests/support/on_ranks.hpp>

namespace libtrain::detail {
namespace {

namespace fs = std::filesystem;
using test::device;
using test::on_ranks;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr std::chrono::seconds kHalfAMinute{30};
const std::string kLabel = "bucket 1 of 3 ('a.weight' to 'b.bias')";
const std::string kBucket = "all_reduce of 4 float32 (sum) for " + kLabel + " (collective number ";
const Failure kLostPeer{.code = ExitCode::communication, .message = "rank 1 did not arrive before the deadline."};
const Failure kFire{.code = ExitCode::failure, .message = "The disk caught fire."};

// Runs `body` on all ranks with a folder that rank 0 makes, and removes when all have done with it.
void in_shared_folder(const std::function<void(Communicator&, const fs::path&)>& body) {
  on_ranks([&body](Communicator& communicator) {
    std::string folder = ::testing::TempDir() + "collective_dump_XXXXXX";
    if (communicator.rank() == 0 && mkdtemp(folder.data()) == nullptr) ADD_FAILURE() << "no folder " << folder;
    folder = communicator.broadcast_bytes(folder, 0);
    body(communicator, folder);
    communicator.barrier();
    if (communicator.rank() == 0) fs::remove_all(folder);
  });
}

std::shared_ptr<Communicator> unowned(Communicator& communicator) {
  return {std::shared_ptr<void>{}, &communicator};
}

void reduce_a_bucket(Communicator& communicator) {
  communicator.label_calls(std::make_shared<const std::string>(kLabel));
  const auto bucket = torch::ones({4}, device());
  communicator.all_reduce(bucket).wait();
  EXPECT_EQ(bucket[0].item<float>(), static_cast<float>(communicator.world_size()));  // on a device, it has ended now
  communicator.label_calls(nullptr);
}

fs::path file_of(const fs::path& folder, int rank) {
  return folder / text("collectives.rank", rank, ".txt");
}

std::string content_of(const fs::path& file) {
  std::ifstream stream{file};
  EXPECT_TRUE(stream.good()) << file;
  std::ostringstream content;
  content << stream.rdbuf();
  return content.str();
}

std::string all_ranks_in_words(const Communicator& communicator) {
  std::vector<int> ranks(static_cast<std::size_t>(communicator.world_size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks_in_words(ranks);
}

void await_file(const fs::path& file) {
  const auto deadline = Deadline::after(kHalfAMinute);
  while (!fs::exists(file) && !deadline.expired()) std::this_thread::yield();
}

// Records of collectives on a device have other texts, and are up to 100 ms old.
TEST(HostOnlyCollectiveDump, TellsWhatARankDidAndWhatFailed) {
  in_shared_folder([](Communicator& communicator, const fs::path& folder) {
    CollectiveDump dump{unowned(communicator), folder / "made" / "here", agree_on_run_id(communicator)};
    reduce_a_bucket(communicator);
    EXPECT_TRUE(dump.write_after(kLostPeer));
    const auto log = content_of(file_of(folder / "made" / "here", communicator.rank()));
    EXPECT_THAT(log, HasSubstr(text("\nrank ", communicator.rank(), " of ", communicator.world_size(), " on ",
                                    host_name(), " (process ", getpid(), "), ")));
    EXPECT_THAT(log, HasSubstr("\nfailed: " + kLostPeer.message + "\n"));
    EXPECT_THAT(log, HasSubstr("  all_reduce of 4 float32 (sum) for " + kLabel + "\n"));
    EXPECT_THAT(log, HasSubstr("\nThis rank is outside of collectives, after " + kBucket));
    EXPECT_THAT(dump.where_to_look(), HasSubstr((folder / "made" / "here" / "collectives.rank*.txt").string()));
  });
}

TEST(HostOnlyCollectiveDump, EveryRankLearnsWhereAllAre) {
  in_shared_folder([](Communicator& communicator, const fs::path& folder) {
    CollectiveDump dump{unowned(communicator), folder, agree_on_run_id(communicator)};
    reduce_a_bucket(communicator);
    EXPECT_TRUE(dump.write_after(kLostPeer));
    communicator.barrier();
    const auto places = dump.where_ranks_are(kHalfAMinute);
    EXPECT_THAT(places, HasSubstr(all_ranks_in_words(communicator) + ": outside of collectives, after " + kBucket));
    EXPECT_EQ(places.find('\n'), std::string::npos) << places;
  });
}

// Such as one that is stuck in code of the user's.
TEST(CollectiveDump, ARankThatHasNotFailedIsAskedWhereItIs) {
  in_shared_folder([](Communicator& communicator, const fs::path& folder) {
    CollectiveDump dump{unowned(communicator), folder, agree_on_run_id(communicator)};
    reduce_a_bucket(communicator);
    if (communicator.rank() == 0) {
      EXPECT_TRUE(dump.write_after(kLostPeer));
      EXPECT_THAT(dump.where_ranks_are(kHalfAMinute), Not(HasSubstr("no collective log found")));
    }
    communicator.barrier();
    const auto log = content_of(file_of(folder, communicator.rank()));
    EXPECT_THAT(log, HasSubstr(communicator.rank() == 0 ? "failed: " : "has not failed, but another rank"));
    EXPECT_THAT(log, HasSubstr(kLabel));
  });
}

TEST(CollectiveDump, FilesOfAnEarlierRunAreNotMistaken) {
  in_shared_folder([](Communicator& communicator, const fs::path& folder) {
    CollectiveDump earlier{unowned(communicator), folder, agree_on_run_id(communicator)};
    reduce_a_bucket(communicator);
    EXPECT_TRUE(earlier.write_after(kLostPeer));
    communicator.barrier();
    CollectiveDump later{unowned(communicator), folder, agree_on_run_id(communicator)};
    EXPECT_EQ(later.where_ranks_are(std::chrono::milliseconds(100)), "");
    communicator.barrier();
    EXPECT_TRUE(later.write_after(kLostPeer));
    communicator.barrier();
    EXPECT_THAT(later.where_ranks_are(kHalfAMinute), HasSubstr(all_ranks_in_words(communicator) + ": "));
  });
}

TEST(HostOnlyCollectiveDump, IsForFailuresOfCommunication) {
  in_shared_folder([](Communicator& communicator, const fs::path& folder) {
    CollectiveDump dump{unowned(communicator), folder, agree_on_run_id(communicator)};
    reduce_a_bucket(communicator);
    EXPECT_FALSE(dump.write_after(kFire));
    communicator.barrier();
    EXPECT_TRUE(fs::is_empty(folder));
    communicator.barrier();
  });
}

TEST(HostOnlyCollectiveDump, IsForFailuresWhileACollectiveIsUnderWay) {
  in_shared_folder([](Communicator& communicator, const fs::path& folder) {
    if (communicator.world_size() == 1) return;
    CollectiveDump dump{unowned(communicator), folder, agree_on_run_id(communicator)};
    communicator.barrier();
    // It cannot end before the others have come, who wait for the file.
    if (communicator.rank() != 0) await_file(file_of(folder, 0));
    auto work = communicator.all_reduce(torch::ones({4}, device()));
    if (communicator.rank() == 0) {
      EXPECT_TRUE(dump.write_after(kFire));
      const auto log = content_of(file_of(folder, 0));
      EXPECT_THAT(log, HasSubstr("\nfailed: " + kFire.message + "\n"));
      EXPECT_THAT(log, HasSubstr("\nThis rank is in all_reduce of 4 float32 (sum) (collective number "));
    }
    work.wait();
  });
}

TEST(CollectiveDump, ADiskThatFailsIsToldAndHidesNothing) {
  in_shared_folder([](Communicator& communicator, const fs::path& folder) {
    if (communicator.rank() == 0) std::ofstream{folder / "occupied"} << "a file";
    communicator.barrier();
    CollectiveDump dump{unowned(communicator), folder / "occupied" / "output", agree_on_run_id(communicator)};
    reduce_a_bucket(communicator);
    EXPECT_TRUE(dump.write_after(kLostPeer));
    EXPECT_THAT(dump.where_to_look(), HasSubstr("Cannot write this rank's last collectives to '" +
                                                file_of(folder / "occupied" / "output", communicator.rank()).string()));
    EXPECT_EQ(dump.where_ranks_are(std::chrono::milliseconds(1)), "");
  });
}

// Two dumps of one rank, as two jobs in one folder would have them: they hear their own requests only.
TEST(CollectiveDump, RequestsOfOneRunAreNotHeardInAnother) {
  in_shared_folder([](Communicator& communicator, const fs::path& folder) {
    CollectiveDump first{unowned(communicator), folder / "first", agree_on_run_id(communicator)};
    CollectiveDump second{unowned(communicator), folder / "second", agree_on_run_id(communicator)};
    reduce_a_bucket(communicator);
    communicator.barrier();
    EXPECT_TRUE(first.write_after(kLostPeer));
    communicator.barrier();
    // In one place or several: a collective that a GPU has just ended may not be known to have ended.
    const auto places = first.where_ranks_are(kHalfAMinute);
    EXPECT_THAT(places, HasSubstr("rank"));
    EXPECT_THAT(places, Not(HasSubstr("no collective log found")));
    EXPECT_FALSE(fs::exists(folder / "second"));
    communicator.barrier();
  });
}

}  // namespace
}  // namespace libtrain::detail
