/** A process with a long run of cjxl in it, to be killed by a test. */
import { encodeWithCjxl } from '../../../picture/codecs/jxl-tools.ts';

const [width, height] = [4_000, 3_000];
const data = Buffer.alloc(width * height * 4);
let state = 1;
for (let i = 0; i < data.length; i++) {
  state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
  data[i] = state >>> 24;
}
await encodeWithCjxl({ data, width, height, channels: 4 }, { distance: 0, effort: 9 });
