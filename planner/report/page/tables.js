"use strict";
// Tables: sorted by a click on a head, filtered by a word, saved as CSV. After the tables, in a script of its own,
// so that the graph need not wait for them. Without it they are whole and plain.

(() => {
  const FEW = 6; // rows up to which a table needs no help

  const textOf = (cell) => cell.innerText.replace(/\s*\n\s*/g, "\n").trim();
  const numberOf = (text) => {
    const found = /^-?[\d,]+(?:\.\d+)?(?:e[-+]?\d+)?/i.exec(text);
    return text === "exact" ? Infinity : found ? Number(found[0].replace(/,/g, "")) : NaN;
  };

  function enhance(table, name) {
    const body = table.tBodies[0];
    const rows = [...body.rows];
    const heads = [...table.tHead.rows[0].cells];
    heads.forEach((head, column) => {
      if (!head.textContent) return;
      const sorter = Object.assign(document.createElement("button"), { type: "button", textContent: head.textContent, className: "sort" });
      head.replaceChildren(sorter);
      sorter.addEventListener("click", () => sort(column, head.getAttribute("aria-sort") === "ascending" ? -1 : 1));
    });
    const count = Object.assign(document.createElement("span"), { className: "quiet" });
    count.setAttribute("role", "status");
    const filter = Object.assign(document.createElement("input"), { type: "search", placeholder: "filter rows" });
    filter.setAttribute("aria-label", `filter ${name}`);
    filter.addEventListener("input", () => {
      const wanted = filter.value.trim().toLowerCase();
      let shown = 0;
      for (const row of rows) {
        row.hidden = !row.textContent.toLowerCase().includes(wanted);
        shown += Number(!row.hidden);
      }
      count.textContent = wanted ? `${shown} of ${rows.length}` : "";
    });
    const csv = Object.assign(document.createElement("button"), { type: "button", textContent: "CSV" });
    csv.setAttribute("aria-label", `save ${name} as CSV`);
    csv.addEventListener("click", () => {
      const cells = (row) => [...row.cells].map((cell) => `"${(cell.dataset.text ?? textOf(cell)).replace(/"/g, '""')}"`).join(",");
      const lines = [cells(table.tHead.rows[0]), ...[...body.rows].filter((row) => !row.hidden).map(cells)];
      const link = document.createElement("a");
      link.href = URL.createObjectURL(new Blob([`${lines.join("\r\n")}\r\n`], { type: "text/csv" }));
      link.download = `${name.toLowerCase().replace(/[^a-z]+/g, "-")}.csv`;
      link.click();
      setTimeout(() => URL.revokeObjectURL(link.href), 1000);
    });
    const bar = Object.assign(document.createElement("div"), { className: "table-bar" });
    bar.append(filter, csv, count);
    table.parentElement.before(bar);

    function sort(column, way) {
      const texts = new Map(rows.map((row) => [row, row.cells[column].textContent.trim()]));
      const numbers = new Map(rows.map((row) => [row, numberOf(texts.get(row))]));
      const isNumeric = rows.filter((row) => Number.isNaN(numbers.get(row))).length < rows.length / 2;
      const less = isNumeric
        ? (a, b) => (Number.isNaN(numbers.get(a)) ? 1 : Number.isNaN(numbers.get(b)) ? -1 : way * (numbers.get(a) - numbers.get(b)) || 0)
        : (a, b) => way * texts.get(a).localeCompare(texts.get(b), "en", { numeric: true });
      rows.sort(less);
      body.append(...rows);
      heads.forEach((head, i) => (i === column ? head.setAttribute("aria-sort", way > 0 ? "ascending" : "descending") : head.removeAttribute("aria-sort")));
    }
  }

  // Paper cannot be opened.
  window.addEventListener("beforeprint", () => document.querySelectorAll("#tables details").forEach((each) => { each.open = true; }));
  let title = "table";
  document.querySelectorAll("#tables h2, #tables h3, #tables table").forEach((each) => {
    if (each.tagName !== "TABLE") title = each.textContent;
    else if (each.tBodies[0].rows.length > FEW) enhance(each, title);
  });
  // Rows lead to the graph.
  if (window.planPage) {
    document.querySelectorAll("[data-kernel]").forEach((name) => {
      const way = Object.assign(document.createElement("button"), { type: "button", textContent: "show", className: "show" });
      way.setAttribute("aria-label", `show ${name.dataset.kernel} in the graph`);
      name.parentElement.dataset.text = name.textContent;
      name.append(" ", way);
    });
    document.getElementById("tables").addEventListener("click", (event) => {
      const name = event.target.matches("button.show") && event.target.closest("[data-kernel]");
      if (!name) return;
      window.planPage.select(name.dataset.kernel);
      const canvas = document.getElementById("view-canvas");
      canvas.scrollIntoView({ block: "center" });
      canvas.focus({ preventScroll: true });
    });
  }
})();
