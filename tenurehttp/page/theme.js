// Runs before anything is drawn, so that a page in the dark does not flash.
(() => {
  const root = document.documentElement;
  try {
    const kept = localStorage.getItem("tenure-theme");
    if (kept === "light" || kept === "dark") root.dataset.theme = kept;
  } catch { /* storage is off: the system decides */ }
  if (new URLSearchParams(location.search).has("wall")) root.dataset.wall = "";
})();
