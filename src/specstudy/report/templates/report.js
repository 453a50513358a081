"use strict";
// The numbers of a token: on hover, on tap, and with the arrow keys inside a text.
const tip = document.getElementById("tip");
let here = null;

function show(token) {
  if (here) here.classList.remove("here");
  here = token;
  tip.hidden = !token;
  if (!token) return;
  token.classList.add("here");
  tip.textContent = token.dataset.d;
  const box = token.getBoundingClientRect();
  const left = Math.max(8, Math.min(box.left, innerWidth - tip.offsetWidth - 8));
  const below = box.bottom + 6;
  const top = below + tip.offsetHeight > innerHeight ? box.top - tip.offsetHeight - 6 : below;
  tip.style.transform = `translate(${left}px, ${Math.max(4, top)}px)`;
}

const tokenOf = (event) => event.target.closest?.("[data-d]") ?? null;
document.addEventListener("pointerover", (event) => { if (event.pointerType === "mouse") show(tokenOf(event)); });
document.addEventListener("click", (event) => show(tokenOf(event)));
document.addEventListener("scroll", () => show(null), { passive: true });
document.addEventListener("focusin", (event) => {
  if (event.target.matches(".text") && event.target.matches(":focus-visible")) show(event.target.firstElementChild);
});
document.addEventListener("focusout", () => show(null));
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") return show(null);
  const step = { ArrowRight: "nextElementSibling", ArrowLeft: "previousElementSibling" }[event.key];
  if (!step || !document.activeElement.matches(".text")) return;
  event.preventDefault();
  show((here && here.parentElement === document.activeElement && here[step]) || here || document.activeElement.firstElementChild);
});
addEventListener("beforeprint", () => document.querySelectorAll("details:not(.prompt)").forEach((part) => { part.open = true; }));
