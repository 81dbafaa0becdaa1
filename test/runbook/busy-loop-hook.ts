/** Preloaded into a program: from one SIGUSR2 to the next its event loop has more to do than it can. */
const BUSY_MS = 1100;
/** Between two turns that are too long. */
const REST_MS = 50;

let timer: NodeJS.Timeout | undefined;

process.on('SIGUSR2', () => {
  if (timer !== undefined) {
    clearInterval(timer);
    timer = undefined;
    return;
  }
  timer = setInterval(() => {
    const untilMs = performance.now() + BUSY_MS;
    while (performance.now() < untilMs);
  }, REST_MS);
});
