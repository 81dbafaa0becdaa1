/**
 * Imported before an engine's program: the second matte that it makes, the first of a picture of a
 * caller, ends the process as a runtime does that does not look whether it got memory.
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
