import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { at as elementAt } from '@matting/test-support/at.ts';
import { isNotTested } from '@matting/test-support/skip.ts';
import ava from 'ava';
import {
  CMYK_ALPHA_JXL,
  CMYK_JXL,
  DEPTH_ALPHA_JXL,
} from '../../test/picture/codecs/extra-channels.ts';
import { decode, paint, paintSlope, readJxl, writeJxl } from '../../test/pictures.ts';
import { isAlive, until } from '../../test/processes.ts';
import { hasJxlTools } from '../makeable.ts';
import { viewAsBytes } from '../rgba-picture.ts';
import { decodeWithDjxl, encodeWithCjxl } from './jxl-tools.ts';

const test = ava.serial;

// Other programs briefly have files in the machine's own folder.
const temporary = mkdtempSync(path.join(tmpdir(), 'matting-test-jxl-'));
process.env.TMPDIR = temporary;
test.after.always(() => rmSync(temporary, { recursive: true }));

const untested = isNotTested(!hasJxlTools() && 'libjxl-tools (djxl, cjxl) are not installed');

const SIZE = { width: 150, height: 100 };
const picture = paint(SIZE.width, SIZE.height, 4, (x, y) => [x, y, 128, (x ^ y) & 255]);
const GOOD = { distance: 1, effort: 3 };

test.skipIf(untested)(
  'files that are cut short or no JPEG XL fail, and leave nothing behind',
  async t => {
    const file = await writeJxl(picture);
    for (const broken of [Buffer.alloc(0), Buffer.from('no picture'), file.subarray(0, 700)]) {
      await t.throwsAsync(decodeWithDjxl(broken, SIZE), { code: 'PROCESSING_FAILED' });
    }
    await t.throwsAsync(decodeWithDjxl(file, { width: 151, height: 100 }), {
      code: 'PROCESSING_FAILED',
    });
    t.deepEqual(readdirSync(temporary), []);
  },
);

/** Running programs named cjxl below a process, without zombies. */
function cjxlBelow(pid: number): number[] {
  try {
    const tasks = readdirSync(`/proc/${pid}/task`);
    return tasks
      .flatMap(task => readFileSync(`/proc/${pid}/task/${task}/children`, 'utf8').split(' '))
      .filter(Boolean)
      .map(Number)
      .filter(child => readFileSync(`/proc/${child}/comm`, 'utf8').trim() === 'cjxl');
  } catch {
    return [];
  }
}

test.skipIf(untested)('a program ends with the worker that started it', async t => {
  const program = new URL('../../test/picture/codecs/cjxl-parent.ts', import.meta.url).pathname;
  const parent = spawn(process.execPath, [program], { stdio: 'ignore' });
  await until('cjxl runs', () => cjxlBelow(parent.pid ?? 0).length > 0);
  const started = cjxlBelow(parent.pid ?? 0);
  t.is(started.length, 1);
  parent.kill('SIGKILL');
  await once(parent, 'exit');
  await until('cjxl is gone', () => !isAlive(elementAt(started, 0)));
});

test.skipIf(untested)('pixels of every kind come out as WebAssembly gives them', async t => {
  const files = [
    await writeJxl(picture),
    await writeJxl(picture, { distance: 1 }),
    await writeJxl(paintSlope(SIZE.width, SIZE.height)),
    await writeJxl(paintSlope(SIZE.width, SIZE.height), { sixteenBit: true }),
    await writeJxl(paint(SIZE.width, SIZE.height, 1, (x, y) => [x ^ y])),
    await writeJxl(paint(SIZE.width, SIZE.height, 2, (x, y) => [x, y])),
  ];
  for (const [index, file] of files.entries()) {
    const { rgba } = await decode(file);
    const expected = viewAsBytes(rgba);
    const actual = await decodeWithDjxl(file, SIZE);
    const worst = actual.reduce(
      (most, value, i) => Math.max(most, Math.abs(value - elementAt(expected, i))),
      0,
    );
    // Versions of libjxl round lossy colours, and 16 bits to 8, differently.
    t.true(worst <= 2, `file ${index}: off by ${worst}`);
  }
});

test.skipIf(untested)('CMYK comes out with its black, through its own profile', async t => {
  // Without black the second and the fourth would be white.
  const colours = [
    [255, 255, 255],
    [118, 118, 118],
    [32, 184, 184],
    [0, 0, 0],
  ];
  for (const [file, alphas] of [
    [CMYK_JXL, [255, 255, 255, 255]],
    [CMYK_ALPHA_JXL, [255, 255, 64, 64]],
  ] as const) {
    const { rgba, ...opened } = await decode(file);
    t.deepEqual([opened.width, opened.height], [16, 16]);
    t.is(opened.translucent, file === CMYK_ALPHA_JXL);
    const bytes = viewAsBytes(rgba);
    for (const [column, colour] of colours.entries()) {
      const at = 4 * (16 * 8 + 4 * column + 2);
      const expected = [...colour, elementAt(alphas, column)];
      for (const [channel, value] of expected.entries()) {
        t.true(
          Math.abs(elementAt(bytes, at + channel) - value) <= 2,
          `${column}: ${bytes[at + channel]}`,
        );
      }
    }
    const cut = file.subarray(0, file.length - 20);
    await t.throwsAsync(decode(cut), { code: 'PROCESSING_FAILED' });
  }
});

test.skipIf(untested)('another channel beside colours and alpha is left out', async t => {
  const { rgba } = await decode(DEPTH_ALPHA_JXL);
  const bytes = viewAsBytes(rgba);
  const pixelAt = (x: number) => [...bytes.subarray(4 * (16 * 8 + x), 4 * (16 * 8 + x + 1))];
  t.deepEqual(pixelAt(2), [255, 255, 255, 255]);
  t.deepEqual(pixelAt(10), [0, 255, 255, 64]);
});

test.skipIf(hasJxlTools())(
  'CMYK is refused, not shown without its black, where the tools are missing',
  async t => {
    await t.throwsAsync(decode(CMYK_JXL), { code: 'NODE_INCAPABLE' });
  },
);

test.skipIf(untested)(
  'a cut-out is written with its alpha exactly, a mask without loss',
  async t => {
    const file = await encodeWithCjxl({ ...picture, channels: 4 }, GOOD);
    const back = await readJxl(file);
    t.is(back.channels, 4);
    for (let i = 0; i < back.data.length; i += 4) {
      t.is(back.data[i + 3], picture.data[i + 3]);
      if (elementAt(back.data, i + 3) > 0)
        t.true(Math.abs(elementAt(back.data, i) - elementAt(picture.data, i)) < 60);
    }
    const data = picture.data.subarray(0, SIZE.width * SIZE.height);
    const mask = await readJxl(
      await encodeWithCjxl({ data, ...SIZE, channels: 1 }, { distance: 0, effort: 3 }),
    );
    t.is(mask.channels, 1);
    t.deepEqual(mask.data, Buffer.from(data));
  },
);
