// SPDX-License-Identifier: Apache-2.0
// Searches the text of the site: a field above the contents, and below it the sections that hold all words. The text,
// which docs/index_text wrote, is loaded with the first search, from a script, since browsers read no other files from a
// disk.
(function () {
  "use strict";
  const most = 30;
  let sections = null; // [address, page, heading, text], and both in small letters
  let wanted = "";

  const element = (tag, attributes, ...children) => {
    const out = document.createElement(tag);
    Object.entries(attributes).forEach(([name, value]) => out.setAttribute(name, value));
    out.append(...children);
    return out;
  };
  const field = element("input", {
    type: "search", id: "text-search", placeholder: "Search (press /)", "aria-label": "Search the text of all pages",
    autocomplete: "off", spellcheck: "false"
  });
  const results = element("div", { id: "text-results", role: "region", "aria-label": "Search results" });
  results.hidden = true;

  function load() {
    if (sections !== null)
      return;
    sections = [];
    const script = element("script", { src: "search_text.js" });
    script.onload = () => {
      sections = window.searchText.map((each) => [...each, (each[1] + " " + each[2]).toLowerCase(), each[3].toLowerCase()]);
      show();
    };
    document.head.append(script);
  }

  // Whole words in a heading count most, then parts of a heading, then words in the text.
  function points(section, words) {
    let sum = 0;
    for (const word of words) {
      const inHeading = section[4].indexOf(word), inText = section[5].indexOf(word);
      if (inHeading < 0 && inText < 0)
        return 0;
      const isName = section[2].toLowerCase().replace("()", "") === word;
      sum += isName ? 40 : section[2].toLowerCase().includes(word) ? 12 : inHeading >= 0 ? 6 : 0;
      for (let at = inText, count = 0; at >= 0 && count < 3; at = section[5].indexOf(word, at + 1), ++count)
        sum += 1;
    }
    return section[0].startsWith("page_errors") ? sum / 4 : sum; // hundreds of sentences, which explain nothing
  }

  // The text around the first word, with all words marked.
  function excerpt(section, words) {
    const places = words.map((word) => section[5].indexOf(word)).filter((at) => at >= 0);
    const begin = places.length === 0 || words.every((word) => section[4].includes(word)) ? 0 :
      Math.max(0, Math.min(...places) - 60);
    const text = section[3].slice(begin, begin + 220);
    const out = element("p", {}, begin > 0 ? "… " : "");
    let at = 0;
    while (at < text.length) {
      const rest = text.slice(at).toLowerCase();
      const next = words.map((word) => [rest.indexOf(word), word.length]).filter(([place]) => place >= 0)
        .sort((a, b) => a[0] - b[0])[0];
      if (next === undefined)
        break;
      out.append(text.slice(at, at + next[0]), element("mark", {}, text.slice(at + next[0], at + next[0] + next[1])));
      at += next[0] + next[1];
    }
    out.append(text.slice(at));
    return out;
  }

  function show() {
    const words = wanted.toLowerCase().split(/\s+/).filter((word) => word.length > 1);
    results.replaceChildren();
    results.hidden = words.length === 0;
    const below = field.getBoundingClientRect().bottom + 6;
    results.style.top = below + "px";
    results.style.maxHeight = "calc(100vh - " + (below + 30) + "px)";
    if (words.length === 0 || sections.length === 0)
      return;
    const found = sections.map((section) => [points(section, words), section]).filter(([sum]) => sum > 0)
      .sort((a, b) => b[0] - a[0]);
    results.append(element("p", { class: "count" }, found.length === 0 ? "Nothing holds all of these words." :
      found.length + (found.length === 1 ? " section" : " sections") + (found.length > most ? ", the best " + most : "")));
    for (const [, section] of found.slice(0, most))
      results.append(element("a", { href: section[0] },
        element("b", {}, section[2] || section[1]), " ", element("span", {}, section[2] ? section[1] : ""),
        excerpt(section, words)));
  }

  document.addEventListener("DOMContentLoaded", () => {
    const top = document.getElementById("top");
    if (top === null)
      return;
    top.append(field, results);
    field.addEventListener("focus", load);
    field.addEventListener("input", () => { wanted = field.value; load(); show(); });
    document.addEventListener("keydown", (event) => {
      const typing = /^(input|textarea)$/i.test(event.target.tagName);
      if (event.key === "/" && !typing) {
        event.preventDefault();
        field.focus();
      } else if (event.key === "Escape" && !results.hidden) {
        field.value = wanted = "";
        show();
      }
    });
    document.addEventListener("click", (event) => {
      if (!results.contains(event.target) && event.target !== field)
        results.hidden = true;
    });
    const asked = new URLSearchParams(location.search).get("q"); // index.html?q=words
    if (asked) {
      field.value = wanted = asked;
      load();
    }
  });
})();
