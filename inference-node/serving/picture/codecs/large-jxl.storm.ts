/** JPEG XL that exceeds WebAssembly's memory. */
import test from 'ava';
import { decode } from '../../test/pictures.ts';
import { hasJxlTools } from '../makeable.ts';
import { encodeWithCjxl } from './jxl-tools.ts';

test.skipIf(!hasJxlTools())(
  'a picture larger than WebAssembly has memory for comes out',
  async t => {
    const size = { width: 8_000, height: 5_200 };
    const data = Buffer.alloc(size.width * size.height, 77);
    const file = await encodeWithCjxl({ data, ...size, channels: 1 }, { distance: 0, effort: 1 });
    const decoded = await decode(file);
    t.deepEqual([decoded.width, decoded.height, decoded.translucent], [8_000, 5_200, false]);
    for (const at of [0, 20_000_000, decoded.rgba.length - 1]) {
      t.is(decoded.rgba[at], 0xff4d4d4d);
    }
  },
);
