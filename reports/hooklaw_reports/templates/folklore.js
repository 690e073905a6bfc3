"use strict";

// The folklore page: claims found by words and by verdict.

class FolklorePage {
  constructor(root) {
    this.root = root;
    this.name = root.dataset.page;
    this.bar = $(".bar", root);
    this.claims = $$("li[data-said]", root);
    this.searchable = null;
    this.bar.hidden = false;
    this.listen();
  }

  has() {
    return false;
  }

  words(claim) {
    return `${claim.dataset.id}\n${claim.textContent}\n${$("a", claim)?.href ?? ""}`.toLowerCase();
  }

  show() {
    this.searchable ??= new Map(this.claims.map((claim) => [claim, this.words(claim)]));
    const query = state.q.toLowerCase().split(/\s+/).filter(Boolean);
    for (const claim of this.claims) {
      const wanted = !state.said.length || state.said.includes(claim.dataset.said);
      claim.hidden = !wanted || !query.every((word) => this.searchable.get(claim).includes(word));
    }
    for (const theme of $$(".theme", this.root)) theme.hidden = !$("li:not([hidden])", theme);
    this.showForm();
    return null;
  }

  showForm() {
    for (const input of $$("input", this.bar)) {
      if (input.type === "checkbox") input.checked = state.said.includes(input.value);
      else if (input.value !== state.q) input.value = state.q;
    }
    const shown = this.claims.filter((claim) => !claim.hidden).length;
    const text = `${shown} of ${this.claims.length} claims`;
    const output = $("output", this.bar);
    if (output.textContent !== text) output.textContent = text;
    $("button[type=reset]", this.bar).hidden = !state.q && !state.said.length;
  }

  fit() {
    document.documentElement.style.scrollPaddingTop = `${this.bar.offsetHeight}px`;
  }

  listen() {
    this.bar.addEventListener("input", (event) => {
      const values = new FormData(this.bar);
      change({ q: values.get("q"), said: values.getAll("said") }, { step: event.target.name !== "q" });
    });
    this.bar.addEventListener("submit", (event) => event.preventDefault());
    this.bar.addEventListener("reset", (event) => {
      event.preventDefault();
      change({ q: "", said: [] });
      this.bar.elements.q.focus();
    });
  }
}
