// attnscope view PAGE.html: serves one report page on loopback, so that it can hand its trace to Perfetto (a
// file: page has no origin to do that from). One file, a random port, a token in the address; stops when the
// tab is closed.
#include "base/text.h"
#include "cli/command.h"
#include "cli/common.h"

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <httplib.h>

#include <atomic>
#include <chrono>
#include <fstream>
#include <ostream>
#include <random>
#include <sstream>
#include <string>
#include <thread>

namespace attnscope::cli {
namespace {

using namespace std::chrono_literals;
constexpr size_t kMaxPageBytes = size_t{512} << 20;
constexpr auto kGrace = 3s;  // a reload closes the connection and opens another: not the end of the tab

std::string random_token() {
  std::random_device device;
  std::string token;
  for (int i = 0; i < 4; ++i) token += fmt::format("{:08x}", device());
  return token;
}

Result<std::string> read_page(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file)
    return fail(ErrorCode::kIo, fmt::format("cannot open {}", path), "name a page that --html wrote");
  std::string text(kMaxPageBytes + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(file.gcount()));
  if (text.size() > kMaxPageBytes) {
    return fail(ErrorCode::kBadInput, fmt::format("{} is larger than {}", path, format_bytes(kMaxPageBytes)),
                "open the file in a browser directly");
  }
  if (!text.starts_with("<!doctype html>") || text.find("attnscope") == std::string::npos) {
    return fail(ErrorCode::kBadInput, fmt::format("{} is not a page of attnscope", path),
                "make one: attnscope explain TRACE --html page.html");
  }
  return text;
}

// The frame around the page: it holds the connection whose end tells us that the tab is gone. The page itself
// may not use the network.
std::string frame_page(const std::string& nonce) {
  return fmt::format(
      "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><title>attnscope</title>"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; frame-src 'self'; "
      "connect-src 'self'; "
      "script-src 'nonce-{0}'; style-src 'nonce-{0}'\">"
      "<style "
      "nonce=\"{0}\">html,body,iframe{{margin:0;border:0;width:100%;height:100%;display:block}}</style></"
      "head>"
      "<body><iframe src=\"page\" title=\"report\"></iframe>"
      "<script nonce=\"{0}\">fetch('alive').then(r => r.body.getReader()).then(async r => {{ while (!(await "
      "r.read()).done); }})</script></body></html>",
      nonce);
}

// Tabs that are open now, and when the last one went.
struct Tabs {
  std::atomic<int> open{0};
  std::atomic<bool> seen{false};
  std::atomic<std::chrono::steady_clock::time_point> last_seen{std::chrono::steady_clock::now()};
  bool gone() const {
    return seen && open == 0 && std::chrono::steady_clock::now() - last_seen.load() > kGrace;
  }
};

void add_routes(httplib::Server& server, const std::string& token, const std::string& page, Tabs& tabs) {
  server.Get("/" + token + "/", [token](const httplib::Request&, httplib::Response& response) {
    response.set_content(frame_page(token), "text/html; charset=utf-8");
  });
  server.Get("/" + token + "/page", [&page](const httplib::Request&, httplib::Response& response) {
    response.set_content(page, "text/html; charset=utf-8");
  });
  server.Get("/" + token + "/alive", [&tabs](const httplib::Request&, httplib::Response& response) {
    ++tabs.open;
    tabs.seen = true;
    response.set_chunked_content_provider(
        "application/octet-stream",
        [](size_t, httplib::DataSink& sink) {
          std::this_thread::sleep_for(250ms);
          return sink.write(".", 1);
        },
        [&tabs](bool) {
          tabs.last_seen = std::chrono::steady_clock::now();
          --tabs.open;
        });
  });
}

int run_view(Context& context, const Arguments& arguments) {
  CLI::App app("Serves one report page on loopback until its tab is closed.", "view");
  std::string path;
  app.add_option("PAGE", path, "a page that --html wrote")->required();
  if (const auto code = parse(context, app, arguments)) return *code;

  const Result<std::string> page = read_page(path);
  if (!page) return print_error(context, page.error());
  const std::string token = random_token();
  Tabs tabs;
  httplib::Server server;
  add_routes(server, token, *page, tabs);
  const int port = server.bind_to_any_port("127.0.0.1");
  if (port < 0) {
    return print_error(context,
                       Error{ErrorCode::kUnavailable, "cannot listen on 127.0.0.1", "is loopback up?"});
  }
  context.out << fmt::format("http://127.0.0.1:{}/{}/\n", port, token) << std::flush;
  context.err << "serving until the tab is closed, or Ctrl-C\n";
  std::jthread watcher([&](const std::stop_token& stop) {
    while (!stop.stop_requested() && !tabs.gone()) std::this_thread::sleep_for(100ms);
    server.stop();
  });
  server.listen_after_bind();
  return 0;
}

}  // namespace

extern const Command view_command;
const Command view_command{"view",
                           "serve one report page on loopback, so that it can open its trace in Perfetto",
                           "attnscope view report.html", run_view};

}  // namespace attnscope::cli
