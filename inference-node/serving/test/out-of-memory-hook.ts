/**
 * Preloaded into an engine: its second matte, the first of a caller's picture, ends the process
 * like a runtime that does not check an allocation.
 */
import { writeSync } from 'node:fs';

let made = 0;

globalThis.Uint8ClampedArray = new Proxy(Uint8ClampedArray, {
  construct(target, given) {
    made += 1;
    if (made < 2) return Reflect.construct(target, given);
    writeSync(2, "terminate called after throwing an instance of 'std::bad_alloc'\n");
    return process.abort();
  },
});
