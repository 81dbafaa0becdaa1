/** Lets `using` dispose of the timers of a clock that was just faked, as it does of Node's own. */
export function makeTimersDisposable(): void {
  const { setTimeout: start } = globalThis;
  const disposable = (...given: Parameters<typeof start>) => {
    const timer = start(...given);
    return Object.assign(timer, { [Symbol.dispose]: () => clearTimeout(timer) });
  };
  Object.assign(globalThis, { setTimeout: disposable });
}
