/** `matting cutout`, the demo: the default model on the picture that comes with the project. */
import { execFile } from 'node:child_process';
import { mkdirSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { promisify } from 'node:util';
import ava from 'ava';
import sharp from 'sharp';
import { isolatedEnv, ROOT, spawnMatting } from '../support/running-service.ts';
import { requireTeapot } from '../support/teapot.ts';
import { temporaryFolder } from '../support/temporary-folder.ts';

const test = ava.serial;

const run = promisify(execFile);
const folder = await temporaryFolder({ teardown: test.after.always });

async function cutout(args: readonly string[], extra: Record<string, string> = {}) {
  const { env } = await isolatedEnv(extra);
  const { exited, output } = spawnMatting(['cutout', ...args], env);
  return { code: await exited, output: output() };
}

test('an ending that is no output format is refused before anything starts', async t => {
  const { code, output } = await cutout(['--out', path.join(folder, 'a.gif')]);
  t.not(code, 0);
  t.regex(output, /\.png, \.webp, \.avif, \.jxl/);
});

test('a photo that is not there is one line', async t => {
  const { code, output } = await cutout(['no-such.jpg', '--out', path.join(folder, 'a.png')]);
  t.not(code, 0);
  t.regex(output, /no such file: no-such\.jpg/);
});

test('what is no picture is told before anything is fetched or started', async t => {
  const text = path.join(folder, 'text.jpg');
  for (const content of ['', 'no picture', '<svg xmlns="http://www.w3.org/2000/svg"/>']) {
    writeFileSync(text, content);
    const { code, output } = await cutout([text, '--out', path.join(folder, 'a.png')]);
    t.is(code, 65, output);
    t.regex(output, /text\.jpg is no JPEG, PNG, WebP, AVIF or JPEG XL image/);
    t.false(output.includes('Starting'), output);
  }
  rmSync(text);
});

test('a place that cannot be written is told before anything starts', async t => {
  const directory = path.join(folder, 'directory.png');
  mkdirSync(directory);
  for (const place of [directory, path.join(folder, 'none/cut.png')]) {
    const { code, output } = await cutout(['--out', place]);
    t.is(code, 73, output);
    t.false(output.includes('Starting'), output);
  }
  rmSync(directory, { recursive: true });
});

test('weights that were brought are used, and none are fetched', async t => {
  const models = path.join(folder, 'models');
  mkdirSync(models);
  const { code, output } = await cutout(['--out', path.join(folder, 'brought.png')], {
    MATTING_MODEL_DIR: models,
    MATTING_WEIGHTS_DIR: path.join(ROOT, 'model-cache'),
  });
  t.is(code, 0, output);
  t.deepEqual(readdirSync(path.join(models, 'u2netp/1.0.0')), ['prepared']);
  for (const made of readdirSync(folder)) rmSync(path.join(folder, made), { recursive: true });
});

test('the demo picture comes out as a teapot without its background', async t => {
  const out = path.join(folder, 'teapot.png');
  const { code, output } = await cutout(['--out', out], { MATTING_MODEL: 'isnet' });
  t.is(code, 0, output);
  t.regex(output, /infer \d+ ms/);
  // Its lid, and its shadow.
  const more = { teapot: [[562, 240]], background: [[950, 610]] } as const;
  await requireTeapot(readFileSync(out), more);
  t.deepEqual(readdirSync(folder), ['teapot.png']);
});

test('a script is told as JSON what was made, and nothing else', async t => {
  const out = path.join(folder, 'told.webp');
  const { env } = await isolatedEnv();
  const args = ['bin/matting.ts', 'cutout', '--json', '--out', out];
  const { stdout, stderr } = await run(process.execPath, args, { cwd: ROOT, env });
  const { cutouts } = JSON.parse(stdout);
  const { file, content_type, width, height, size_bytes, stages_ms } = cutouts[0];
  t.deepEqual(
    { count: cutouts.length, file, content_type, width, height, size_bytes },
    {
      count: 1,
      file: out,
      content_type: 'image/webp',
      width: 1200,
      height: 900,
      size_bytes: statSync(out).size,
    },
  );
  t.true(stages_ms.infer > 0, stdout);
  t.regex(stderr, /Service ready/);
});

test('the ending chooses the format', async t => {
  const picture = path.join(ROOT, 'docs/images/demo.jpg');
  const marks = { webp: 'WEBP', avif: 'ftypavif', jxl: 'JXL ' };
  for (const [ending, mark] of Object.entries(marks)) {
    const out = path.join(folder, `cut.${ending}`);
    const { code, output } = await cutout([picture, '--out', out]);
    t.is(code, 0, output);
    const head = readFileSync(out).subarray(0, 32);
    // A JPEG XL codestream may come bare.
    const bare = ending === 'jxl' && head.readUInt16BE(0) === 0xff0a;
    t.truthy(bare || head.includes(mark), `${ending}: ${head.toString('hex')}`);
  }
});

test('what is wanted of the cut-out is the same as over REST: white, square, 85 %, JPEG', async t => {
  const background = path.join(folder, 'behind.png');
  await sharp({ create: { width: 30, height: 20, channels: 3, background: '#00f' } }).toFile(
    background,
  );
  const square = ['--crop', '--scale', '85%', '--output-width', '300', '--output-height', '300'];
  for (const [place, expected] of [
    [['--background', 'white'], 255],
    [['--background-file', background], 0],
  ] as const) {
    const out = path.join(folder, 'square.jpg');
    const { code, output } = await cutout(['--out', out, ...square, ...place]);
    t.is(code, 0, output);
    const { data, info } = await sharp(out).raw().toBuffer({ resolveWithObject: true });
    t.deepEqual([info.format, info.width, info.height, info.channels], ['raw', 300, 300, 3]);
    for (const i of [0, 299, 300 * 299, 300 * 300 - 1]) {
      t.true(Math.abs(Number(data[3 * i]) - expected) <= 3, `corner ${i}: ${data[3 * i]}`);
      t.true(Number(data[3 * i + 2]) >= 250);
    }
  }
});

test('nonsense in what is wanted is told before anything starts', async t => {
  for (const [args, said] of [
    [['--scale', '5%'], /scale must be from 10% to 100%/],
    [['--background', 'blurple'], /background must be/],
    [['--out', path.join(folder, 'a.jpg')], /jpeg has no transparency/],
    [['--background-file', path.join(folder, 'none.png')], /background cannot be read/],
  ] as const) {
    const { code, output } = await cutout(args);
    t.true(code === 64 || code === 66, output);
    t.regex(output, said);
    t.false(output.includes('Starting'), output);
  }
});
