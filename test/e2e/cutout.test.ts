/** `matting cutout`, the demo: the default model on the picture that comes with the project. */
import { execFile } from 'node:child_process';
import { readdirSync, readFileSync, statSync } from 'node:fs';
import path from 'node:path';
import { promisify } from 'node:util';
import ava from 'ava';
import sharp from 'sharp';
import { isolatedEnv, ROOT, spawnMatting } from '../support/running-service.ts';
import { requireTeapot } from '../support/teapot.ts';
import { temporaryFolder } from '../support/temporary-folder.ts';

const test = ava.serial;

test('the demo picture comes out as a teapot without its background, and a script is told as JSON', async t => {
  const folder = await temporaryFolder(t);
  const out = path.join(folder, 'teapot.png');
  const { env } = await isolatedEnv({ MATTING_MODEL: 'isnet' });
  const args = ['bin/matting.ts', 'cutout', '--json', '--out', out];
  const { stdout, stderr } = await promisify(execFile)(process.execPath, args, { cwd: ROOT, env });
  // Its lid, and its shadow.
  const more = { teapot: [[562, 240]], background: [[950, 610]] } as const;
  await requireTeapot(readFileSync(out), more);
  t.deepEqual(readdirSync(folder), ['teapot.png']);
  const { cutouts } = JSON.parse(stdout);
  t.is(cutouts.length, 1);
  const sizeBytes = statSync(out).size;
  t.like(cutouts[0], { file: out, content_type: 'image/png', size_bytes: sizeBytes });
  t.like(cutouts[0], { width: 1200, height: 900 });
  t.true(cutouts[0].stages_ms.infer > 0, stdout);
  t.regex(stderr, /Service ready(.|\n)*infer \d+ ms/);
});

test('weights that were brought are used, and what is wanted is the same as over REST: square, 85 %, JPEG', async t => {
  const folder = await temporaryFolder(t);
  const [models, behind, out] = ['models', 'behind.png', 'square.jpg'].map(name =>
    path.join(folder, name),
  ) as [string, string, string];
  const { env } = await isolatedEnv({
    MATTING_MODEL_DIR: models,
    MATTING_WEIGHTS_DIR: path.join(ROOT, 'model-cache'),
  });
  const create = { width: 30, height: 20, channels: 3, background: '#00f' } as const;
  await sharp({ create }).toFile(behind);
  const square = ['--crop', '--scale', '85%', '--output-width', '300', '--output-height', '300'];
  const args = ['cutout', '--out', out, ...square, '--background-file', behind];
  const { exited, output } = spawnMatting(args, env);
  t.is(await exited, 0, output());
  t.deepEqual(readdirSync(path.join(models, 'u2netp/1.0.0')), ['prepared']);
  t.is((await sharp(out).metadata()).format, 'jpeg');
  const { data, info } = await sharp(out).raw().toBuffer({ resolveWithObject: true });
  t.deepEqual([info.width, info.height, info.channels], [300, 300, 3]);
  for (const i of [0, 299, 300 * 299, 300 * 300 - 1]) {
    t.true(Number(data[3 * i]) <= 3, `corner ${i}: ${data[3 * i]}`);
    t.true(Number(data[3 * i + 2]) >= 250);
  }
});
