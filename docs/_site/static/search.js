// Looks for every word of the query in the sections of `search-text.js`. A word is what stands
// between blanks; inside Chinese nothing is cut, so that 位置编码 is found as it is written.
(() => {
  const chinese = document.documentElement.lang.startsWith("zh");
  const form = document.getElementById("search-form");
  const results = document.getElementById("search-results");
  const count = document.getElementById("search-count");
  const MOST = 60, AROUND = 70;

  const pairs = (word) => /^[\u4e00-\u9fff]{3,}$/.test(word)
    ? Array.from({ length: word.length - 1 }, (_, i) => word.slice(i, i + 2)) : [word];
  // If nothing is found: English words without their plural, Chinese ones in pairs of characters, of
  // which half are enough (残差掩码 has 残差 and 掩码, and 差掩, which is nowhere).
  const looser = (words) => words.flatMap((word) => pairs(word.replace(/(?<=[a-z]{3})s$/, "")));

  function find(words, enough = words.length) {
    const found = [];
    for (const [place, page, title, text] of SECTIONS) {
      const heading = `${page} ${title}`.toLowerCase(), body = text.toLowerCase();
      const there = words.filter((word) => heading.includes(word) || body.includes(word)).length;
      if (there < enough) continue;
      let score = 20 * there;
      for (const word of words) {
        score += (title || page).toLowerCase().includes(word) ? 20 : heading.includes(word) ? 8 : 0;
        score += Math.min(body.split(word).length - 1, 10);
      }
      found.push({ place, page, title, text, score });
    }
    return found.sort((one, other) => other.score - one.score);
  }

  function excerpt(text, words) {
    const body = text.toLowerCase();
    const places = words.map((word) => body.indexOf(word)).filter((at) => at >= 0);
    const start = Math.max(Math.min(...places, body.length) - AROUND, 0);
    const shown = text.slice(start, start + 3 * AROUND);
    const line = document.createElement("p");
    if (start > 0) line.append("…");
    const pattern = words.map((word) => word.replace(/[.*+?^${}()|[\]\\]/g, "\\$&")).join("|");
    for (const [i, part] of shown.split(new RegExp(`(${pattern})`, "i")).entries()) {
      if (i % 2) line.append(Object.assign(document.createElement("mark"), { textContent: part }));
      else line.append(part);
    }
    if (start + 3 * AROUND < text.length) line.append("…");
    return line;
  }

  function show(query) {
    let words = query.toLowerCase().split(/\s+/).filter(Boolean);
    results.replaceChildren();
    count.textContent = "";
    if (!words.length) return;
    let found = find(words);
    if (!found.length) {
      words = looser(words);
      found = find(words, Math.ceil(words.length / 2));
    }
    count.textContent = chinese ? `${found.length} 处` : `${found.length} found`;
    for (const each of found.slice(0, MOST)) {
      const item = document.createElement("li"), link = document.createElement("a");
      link.href = each.place;
      link.textContent = each.title ? `${each.page} › ${each.title}` : each.page;
      item.append(link, excerpt(each.text, words));
      results.append(item);
    }
  }

  const input = form.elements.q;
  input.value = new URLSearchParams(location.search).get("q") || "";
  form.addEventListener("submit", (event) => { event.preventDefault(); show(input.value); });
  input.addEventListener("input", () => show(input.value));
  show(input.value);
})();
