#include "cli/warm_options.h"

#include <CLI/CLI.hpp>

namespace attnscope::cli {

std::optional<int> WarmOptions::parse(Context& context, const Arguments& arguments) {
  CLI::App app("Compile the kernels that shapes will need into the cache, before they are needed.", "warm");
  app.add_option("shapes", shapes, "B,H,S,D or B,H,Hkv,L,S,E,Ev")->required()->type_name("N,…");
  app.add_option("--dtype", dtypes, "bf16, f16, or both: bf16,f16")->type_name("TYPE,…");
  app.add_flag("--causal", causal, "With a causal mask");
  app.add_flag("--all", all, "Both dtypes, with and without the causal mask");
  app.add_option("--arch", arch, "Compile for this GPU (sm_90a), which need not be here")->type_name("SM");
  app.add_option("--with", features,
                 "Features of the call: window, lengths, softcap, alibi, sinks, dropout, bool, bias, pages")
      ->type_name("NAME,…");
  app.add_option("--backends", backends, "For these, not only for the one that auto would choose")
      ->type_name("NAME,…");
  files.add_to(app, OutputFiles::kJson);
  return cli::parse(context, app, arguments);
}

}  // namespace attnscope::cli
