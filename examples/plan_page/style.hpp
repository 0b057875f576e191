// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The style of a page, light and dark, and the few lines of script that describe the item under the
/// pointer.

#include <string_view>

namespace plan_page {

inline constexpr std::string_view page_style = R"css(
:root{color-scheme:light dark;--paper:#fff;--card:#f6f8fa;--ink:#16202a;--soft:#55616d;--rule:#dde3e9;--grid:#e9edf1;
--accent:#1f6fb4;--warn:#b3261e;--good:#11734f}
@media (prefers-color-scheme:dark){:root{--paper:#11171d;--card:#19212a;--ink:#eef2f6;--soft:#a3b0bd;--rule:#2c3742;
--grid:#222b34;--accent:#6db3ee;--warn:#ff8a80;--good:#5ed3a3}}
*{box-sizing:border-box}
body{margin:0;background:var(--paper);color:var(--ink);
font:16px/1.5 system-ui,"Segoe UI",Roboto,"DejaVu Sans",sans-serif}
main{max-width:1080px;margin:0 auto;padding:32px 20px 64px}
h1{font-size:28px;line-height:1.25;margin:0 0 4px}h2{font-size:21px;margin:44px 0 8px}
p{margin:8px 0;max-width:100ch}.sub{color:var(--soft)}code{font-size:.92em;overflow-wrap:anywhere}
.verdict{font-size:19px;max-width:none;margin:18px 0;padding:12px 16px;border-left:4px solid var(--accent);background:var(--card)}
.verdict.none{border-color:var(--warn)}
.cards{display:grid;grid-template-columns:repeat(auto-fit,minmax(190px,1fr));gap:12px;margin:18px 0}
.card{background:var(--card);border-radius:10px;padding:12px 16px}.card b{display:block;font-size:23px;line-height:1.3}
.card span.what,.card small{color:var(--soft);font-size:14px;display:block}
figure{margin:14px 0}figcaption,.readout{color:var(--soft);font-size:14px}.readout{min-height:1.5em;margin:0}
figure{overflow-x:auto}svg.chart{width:100%;min-width:640px;height:auto;display:block}.small svg.chart{min-width:440px}
.pair{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(440px,100%),1fr));gap:28px}
.pair h3{font-size:16px;margin:8px 0 0}
svg.chart text{font:13px system-ui,"Segoe UI",Roboto,"DejaVu Sans",sans-serif;fill:var(--ink)}
svg.chart .label{text-anchor:end}svg.chart .total{font-weight:600}
svg.chart .tick,svg.chart .foot{text-anchor:middle;fill:var(--soft);font-size:12px}
svg.chart .axis{fill:var(--soft)}svg.chart .middle{text-anchor:middle}
svg.chart .end,svg.chart .tick.end,svg.chart .foot.end{text-anchor:end}
svg.chart .in{text-anchor:middle;fill:#fff;font-size:12px;pointer-events:none}
.grid{stroke:var(--grid);stroke-width:1}.limit{stroke:var(--warn);stroke-width:2;stroke-dasharray:6 4}
svg.chart .limit-label{fill:var(--warn);font-weight:600}svg.chart .limit-label.start{text-anchor:middle}
.line{fill:none;stroke-width:2.5}.dot{stroke:var(--paper);stroke-width:1.5}
.line.best{stroke:#1f78c1}.dot.best,.swatch.best{fill:#1f78c1}
.line.flat{stroke:#d9730d;stroke-dasharray:7 4}.dot.flat,.swatch.flat{fill:#d9730d}
.line.plain{stroke:#3a9d74;stroke-dasharray:2 4}.dot.plain,.swatch.plain{fill:#3a9d74}
.marker{stroke-width:1.5}.marker.now{stroke:var(--soft);stroke-dasharray:3 4}.marker.ends{stroke:var(--good)}
svg.chart .marker-label{paint-order:stroke;stroke:var(--paper);stroke-width:5px;stroke-linejoin:round}
svg.chart .marker-label.now{fill:var(--soft)}svg.chart .marker-label.ends{fill:var(--good);font-weight:600}
.legend{list-style:none;display:flex;flex-wrap:wrap;gap:4px 18px;padding:0;margin:8px 0;font-size:14px}
.legend svg{width:14px;height:14px;margin-right:6px;vertical-align:-2px}
.part{stroke:var(--paper);stroke-width:1}
.matrix-products{fill:#1d5fa3}.attention{fill:#2c78ba}.memory-bound-operations{fill:#9cc7ec}
.launches-and-contention{fill:#8b97a4}.optimizer{fill:#4a7a71}.uneven-stages{fill:#5d6874}.stragglers{fill:#b9c2cb}
.pipeline-bubble{fill:#8a5aa5}.tensor-parallel-traffic{fill:#b44a12}.context-parallel-traffic{fill:#d9730d}
.expert-traffic{fill:#ef9a3d}.pipeline-sends{fill:#c99a2e}.data-parallel-traffic{fill:#b5364a}
.hidden-behind-computation{fill:#b9c2cb;fill-opacity:.45}
.parameters{fill:#1d5fa3}.gradients{fill:#2c78ba}.activations{fill:#ef9a3d}.logits{fill:#c99a2e}.buffers{fill:#8b97a4}
.binds{fill:#b5364a}.helps{fill:#ef9a3d}
svg.chart .in-memory-bound-operations,svg.chart .in-context-parallel-traffic,svg.chart .in-expert-traffic,svg.chart .in-stragglers,
svg.chart .in-activations,svg.chart .in-pipeline-sends,svg.chart .in-logits,svg.chart .in-helps,
svg.chart .in-launches-and-contention,svg.chart .in-buffers{fill:#101820}
svg.chart .in-hidden-behind-computation{fill:var(--ink)}
.interval{stroke:var(--ink);stroke-width:1.5;fill:none}.scroll{overflow-x:auto}td code{overflow-wrap:normal}table{border-collapse:collapse;margin:10px 0;font-size:15px;font-variant-numeric:tabular-nums}
caption{text-align:left;color:var(--soft);font-size:14px;padding:4px 0}
th,td{padding:5px 14px 5px 0;border-bottom:1px solid var(--rule);text-align:right;vertical-align:top}
th:first-child,td.words{text-align:left}th{font-weight:600}tbody th{font-weight:400}
details{margin:8px 0}summary{cursor:pointer;color:var(--accent);font-size:15px}
iframe{border:1px solid var(--rule);border-radius:8px;width:100%;display:block;background:var(--paper)}
footer{margin-top:48px;padding-top:12px;border-top:1px solid var(--rule);font-size:14px;color:var(--soft)}
@media print{details>*{display:block}main{max-width:none}}
)css";

inline constexpr std::string_view page_script = R"js(
for (const figure of document.querySelectorAll("figure")) {
  const readout = figure.querySelector(".readout");
  if (readout) figure.addEventListener("pointerover", event => {
    const mark = event.target.closest("[data-tip]");
    readout.textContent = mark ? mark.dataset.tip : "";
  });
}
document.documentElement.dataset.script = "ran";
)js";

} // namespace plan_page
