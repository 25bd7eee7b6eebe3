// During a deploy the modules of the page may come from two versions of the service. If they do not
// fit together nothing is drawn, so that the page is loaded again, a second later, for a minute.
(() => {
  let asked = false;
  addEventListener("error", ({ target }) => {
    if (asked || document.documentElement.dataset.drawn || !(target === window || target instanceof HTMLScriptElement)) return;
    asked = true;
    try {
      const first = Number(sessionStorage.getItem("tenure-again")) || Date.now();
      const tried = Date.now() - first;
      if (tried > 60_000 && tried < 300_000) return;
      sessionStorage.setItem("tenure-again", String(tried < 300_000 ? first : Date.now()));
    } catch {
      return; // storage is off: nothing would end it
    }
    setTimeout(() => location.reload(), 1000);
  }, true); // a script that is not there says so to its element only
})();
