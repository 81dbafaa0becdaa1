/** `matting cutout` with a model that is chosen, on the project's own picture. */
import { execFile } from 'node:child_process';
import { readdirSync, readFileSync, statSync } from 'node:fs';
import path from 'node:path';
import { promisify } from 'node:util';
import test from 'ava';
import sharp from 'sharp';
import { isolatedEnv, ROOT, spawnMatting } from '../running-service.ts';
import { requireTeapot } from '../support/teapot.ts';
import { temporaryFolder } from '../support/temporary-folder.ts';

test('the demo picture comes out as a teapot without its background, and a script is told as JSON', async t => {
  const folder = await temporaryFolder(t);
  const out = path.join(folder, 'teapot.png');
  const { env } = await isolatedEnv();
  const args = ['bin/matting.ts', 'cutout', '--json', '--model', 'isnet', '--out', out];
  const { stdout, stderr } = await promisify(execFile)(process.execPath, args, { cwd: ROOT, env });
  // Its lid, and its shadow.
  const more = { teapot: [[562, 240]], background: [[950, 610]] } as const;
  await requireTeapot(readFileSync(out), more);
  t.deepEqual(readdirSync(folder), ['teapot.png']);
  const { cutouts } = JSON.parse(stdout);
  t.is(cutouts.length, 1);
  const sizeBytes = statSync(out).size;
  t.like(cutouts[0], { file: out, content_type: 'image/png', size_bytes: sizeBytes, warnings: [] });
  t.like(cutouts[0], { width: 1200, height: 900 });
  t.deepEqual(cutouts[0].models, [{ name: 'isnet', role: 'subject' }]);
  t.true(cutouts[0].stages_ms.infer > 0, stdout);
  t.regex(stderr, /Service ready(.|\n)*infer \d+ ms/);
});

test('a picture of nothing fails where that is asked, and leaves no file', async t => {
  const folder = await temporaryFolder(t);
  const wall = path.join(folder, 'wall.png');
  const create = { width: 640, height: 480, channels: 3, background: '#8a9097' } as const;
  await sharp({ create }).toFile(wall);
  const { env } = await isolatedEnv();
  const args = ['cutout', wall, '--model', 'isnet', '--fail-without-subject'];
  const out = path.join(folder, 'nothing.png');
  const { exited, output } = spawnMatting([...args, '--out', out], env);
  t.is(await exited, 1, output());
  t.regex(output(), /wall\.png: NO_SUBJECT: /);
  t.deepEqual(readdirSync(folder), ['wall.png']);
});
