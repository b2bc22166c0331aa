// Findings with why, remedy and evidence; an evidence button selects the event in the timeline that holds it.
function findings_list(findings, timelines) {
  if (!findings.length) return [element("p", { text: "No finding: what ran is what was asked for." })];
  return findings.map((f, index) => {
    const status = element("span", { role: "status", class: "note" });
    const go = (evidence) => {
      const found = timelines.find((t) => t.select_ordinal(evidence.ordinal));
      if (found) { found.canvas.scrollIntoView({ block: "center" }); found.canvas.focus(); } else status.textContent = ` event ${evidence.ordinal} is not in a timeline shown here`;
    };
    return element("details", { class: `finding severity-${f.severity}`, id: `finding-${index + 1}`, open: index < 3 ? "" : null },
      element("summary", { text: `${f.severity.toUpperCase()} ${f.id}: ${safe(f.title, 300)}` }),
      f.range ? element("p", { text: `In ${safe(f.range)}` }) : null,
      element("p", { text: `Why: ${safe(f.why, 2000)}` }), element("p", { text: `Remedy: ${safe(f.remedy, 2000)}` }),
      known(f.saving_us) ? element("p", { text: `Would save up to ${time(f.saving_us)}: ${safe(f.saving_basis, 300)}${f.group ? ` (counted once with others of group ${safe(f.group, 60)})` : ""}` }) : null,
      f.evidence?.length ? element("p", {}, "Evidence: ", ...f.evidence.slice(0, 8).map((e) => element("button", { type: "button", text: `event ${e.ordinal}`, onclick: () => go(e) })),
        f.evidence.length > 8 ? ` and ${count(f.evidence.length - 8)} more` : "", status) : null);
  });
}
