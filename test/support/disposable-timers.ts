/** Fake clocks return timers without Symbol.dispose, which Node's have. */
export function makeTimersDisposable(): void {
  const { setTimeout: start } = globalThis;
  const disposable = (...given: Parameters<typeof start>) => {
    const timer = start(...given);
    return Object.assign(timer, { [Symbol.dispose]: () => clearTimeout(timer) });
  };
  Object.assign(globalThis, { setTimeout: disposable });
}
