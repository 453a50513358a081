"use strict";
// The numbers of a token: on hover, on tap, and with the keyboard inside a group of tokens.
const tip = document.getElementById("tip");
let here = null;

// The first line is about the token; each other one is a candidate: its probability, a space, its text.
function candidate(line) {
  const [probability] = line.split(" ", 1);
  const row = document.createElement("div");
  const text = document.createElement("bdi");
  row.className = "candidate";
  row.style.setProperty("--share", `${100 * Number(probability)}%`);
  text.textContent = line.slice(probability.length + 1);
  row.append(`${probability} `, text);
  return row;
}

function show(token) {
  if (here) here.classList.remove("here");
  here = token;
  tip.hidden = !token;
  if (!token) return;
  token.classList.add("here");
  const [about, ...candidates] = token.dataset.d.split("\n");
  tip.replaceChildren(about, ...candidates.map(candidate));
  const box = token.getClientRects()[0];
  const left = Math.max(8, Math.min(box.left, document.documentElement.clientWidth - tip.offsetWidth - 8));
  const below = box.bottom + 6;
  const top = below + tip.offsetHeight > innerHeight ? box.top - tip.offsetHeight - 6 : below;
  tip.style.transform = `translate(${left}px, ${Math.max(4, top)}px)`;
}

function stepped(key, tokens) {
  const at = tokens.indexOf(here);
  const places = { ArrowRight: at + 1, ArrowLeft: Math.max(at, 1) - 1, Home: 0, End: tokens.length - 1 };
  return key in places ? tokens[Math.min(places[key], tokens.length - 1)] : null;
}

const tokenOf = (event) => event.target.closest?.("[data-d]") ?? null;
document.addEventListener("pointerover", (event) => { if (event.pointerType === "mouse") show(tokenOf(event)); });
document.addEventListener("click", (event) => show(tokenOf(event)));
document.addEventListener("focusin", (event) => {
  if (event.target.matches(".tokens:focus-visible")) show(event.target.querySelector("[data-d]"));
});
document.addEventListener("focusout", () => show(null));
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") return show(null);
  if (!document.activeElement.matches(".tokens") || event.altKey || event.ctrlKey || event.metaKey) return;
  const token = stepped(event.key, [...document.activeElement.querySelectorAll("[data-d]")]);
  if (!token) return;
  event.preventDefault();
  token.scrollIntoView({ block: "nearest" });
  show(token);
});
document.addEventListener("scroll", () => {
  if (!here) return;
  const box = here.getBoundingClientRect();
  show(box.bottom > 0 && box.top < innerHeight ? here : null);
}, { passive: true });

// A link to a prompt opens it.
function openTarget() {
  const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (target?.matches("details")) target.open = true;
}
addEventListener("hashchange", openTarget);
openTarget();
