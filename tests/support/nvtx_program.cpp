// A program with NVTX ranges and no GPU, for the tests of `attnscope record`. Arguments: what it does at the
// end.
#include <nvtx3/nvToolsExt.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <cstring>

namespace {

void work(const char* name) {
  nvtxRangePushA(name);
  nvtxEventAttributes_t a{};
  a.version = NVTX_VERSION;
  a.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
  a.messageType = NVTX_MESSAGE_TYPE_ASCII;
  a.message.ascii = "aten::mm, seq = 1, sizes = [[2, 2]]";
  nvtxRangePushEx(&a);
  usleep(1000);
  nvtxRangePop();
  nvtxRangePop();
}

}  // namespace

int main(int argc, char** argv) {
  const char* ending = argc > 1 ? argv[1] : "exit";
  for (int i = 0; i < 3; ++i) work("attn_fwd");
  if (std::strcmp(ending, "fork") == 0) {
    const pid_t child = fork();
    if (child == 0) {
      work("in the child");
      _exit(0);
    }
    waitpid(child, nullptr, 0);
  }
  if (std::strcmp(ending, "crash") == 0) std::abort();
  if (std::strcmp(ending, "kill") == 0) raise(SIGKILL);
  return std::strcmp(ending, "fail") == 0 ? 3 : 0;
}
