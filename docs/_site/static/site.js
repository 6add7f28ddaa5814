// Copy buttons, live panels, tables for narrow screens, and the labels that the theme has in English only.
document.addEventListener("DOMContentLoaded", () => {
  const chinese = document.documentElement.lang.startsWith("zh");
  const say = chinese
    ? { copy: "复制", copied: "已复制", run: "在这里运行（下载 {} MB）", whole: "打开整页" }
    : { copy: "Copy", copied: "Copied", run: "Run it here ({} MB are fetched)", whole: "Open the whole page" };

  // What a terminal shows begins with "$ "; only what one types is copied.
  const typed = (text) => text.split("\n").filter((line) => line.startsWith("$ "))
    .map((line) => line.slice(2)).join("\n");

  async function copy(text) {
    if (navigator.clipboard) return navigator.clipboard.writeText(text);
    const area = Object.assign(document.createElement("textarea"), { value: text });
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }

  for (const block of document.querySelectorAll("article div.highlight")) {
    const kind = block.parentElement.className;
    if (/highlight-text/.test(kind)) continue;  // what a program printed
    const button = document.createElement("button");
    button.className = "copy";
    button.type = "button";
    button.textContent = say.copy;
    button.addEventListener("click", async () => {
      const text = block.querySelector("pre").textContent.replace(/\n$/, "");
      await copy(/highlight-console/.test(kind) ? typed(text) : text);
      button.textContent = say.copied;
      setTimeout(() => { button.textContent = say.copy; }, 1500);
    });
    block.append(button);
  }

  // A live panel fetches nothing until it is asked to. `data-live` names a shipped model, `data-at`
  // what of its page is shown; a site that was built without the models has no panels.
  async function addPanels() {
    const panels = document.querySelectorAll("[data-live]");
    if (!panels.length || location.protocol === "file:") return;  // a disk gives nothing to fetch
    const root = new URL(document.documentElement.dataset.content_root, location);
    const live = new URL("../live/", root);
    const answer = await fetch(new URL("sizes.json", live));
    if (!answer.ok) return;
    const sizes = await answer.json();
    for (const panel of panels) {
      const model = panel.dataset.live, at = panel.dataset.at;
      const address = new URL(`${model}/index.html${at ? `#${at.replace("LANGUAGE", chinese ? "zh" : "en")}` : ""}`, live);
      const button = Object.assign(document.createElement("button"), {
        type: "button", className: "run-live", textContent: say.run.replace("{}", (sizes[model] / 1e6).toFixed(0)),
      });
      const whole = Object.assign(document.createElement("a"), { href: address, textContent: say.whole });
      button.addEventListener("click", () => {
        const frame = Object.assign(document.createElement("iframe"), { src: address, title: model });
        button.replaceWith(frame);
        frame.focus();
      });
      panel.append(button, " ", whole);
    }
  }
  addPanels().catch(() => {});  // without a network there are no panels

  // A table that is wider than the screen becomes a list of its rows, each cell with its heading.
  function stack() {
    for (const table of document.querySelectorAll("article table.docutils")) {
      const wrapper = table.parentElement;
      table.classList.remove("stacked");
      const heads = [...table.querySelectorAll("thead th")].map((head) => head.textContent.trim());
      const narrow = window.innerWidth < 720 && table.scrollWidth > wrapper.clientWidth + 1;
      if (!narrow || heads.filter(Boolean).length < 2) continue;  // without headings a list says nothing
      for (const row of table.querySelectorAll("tbody tr")) {
        [...row.children].forEach((cell, i) => { cell.dataset.head = heads[i] || ""; });
      }
      table.classList.add("stacked");
    }
  }
  stack();
  let waiting;
  window.addEventListener("resize", () => { clearTimeout(waiting); waiting = setTimeout(stack, 150); });

  if (chinese) {
    const labels = {
      "Toggle site navigation sidebar": "打开或关闭导航",
      "Toggle table of contents sidebar": "打开或关闭本页内容",
      "Toggle Light / Dark / Auto color theme": "切换浅色、深色或跟随系统",
    };
    for (const [english, label] of Object.entries(labels)) {
      document.querySelectorAll(`[aria-label="${english}"]`)
        .forEach((element) => element.setAttribute("aria-label", label));
    }
  }
});
