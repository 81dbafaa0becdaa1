/** File names that are no text, collide on a disk, or are refused by it. */
import { mkdirSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import ava from 'ava';
import { cutOutOf } from '../../control-plane/nodes/test/scripted-exchange.ts';
import { onFoldingDisk } from './folding-disk.ts';
import { picture, useRemoveCommand } from './remove-command.ts';

const test = ava.serial;
const command = await useRemoveCommand(test);
const { startByShell, run, write, read, filesBelow, journal, charged } = command;

/** The name is in Latin-1. */
function writeLatin1(name: string, number: number): void {
  const place = Buffer.from(`${command.folder}/${name}`, 'latin1');
  mkdirSync(Buffer.from(path.dirname(place.toString('latin1')), 'latin1'), { recursive: true });
  writeFileSync(place, picture(number));
}

// Other systems refuse such names.
test.skipIf(process.platform !== 'linux')(
  'names that are not UTF-8 are cut out, each on its own',
  async t => {
    const names = ['caf\xe9.png', 'caf\xe8.png', 'd\xe9j\xe0/vu.png', 'gbk-\xd6\xd0\xce\xc4.png'];
    for (const [number, name] of names.entries()) writeLatin1(`photos/${name}`, number);
    write('photos/café \u{1f600}.png', picture(4));
    const args = ['photos', '--to', 'out', '--recursive'];
    const { code, stderr, stdout } = await run(args);
    t.is(code, 0, stderr);
    t.regex(stdout.toString(), /5 cut out \(5 jobs\)\n/);
    t.deepEqual(filesBelow('out/photos'), [
      'caf%E8.png',
      'caf%E9.png',
      'café \u{1f600}.png',
      'd%E9j%E0/vu.png',
      'gbk-%D6%D0%CE%C4.png',
    ]);
    t.deepEqual(read('out/photos/caf%E9.png'), cutOutOf(picture(0)));
    t.true(journal().some(({ file }) => file === 'photos/caf%E9.png'));
    t.regex((await run(args)).stdout.toString(), /0 cut out \(0 jobs\), 5 already there/);
    t.is(await charged(), 5);

    // Node's arguments lose bytes of names that the shell expands.
    const end = await startByShell(`photos/caf* --to named --url ${command.url}`).ended;
    t.is(end.code, 0, end.stderr);
    t.deepEqual(filesBelow('named'), [
      'caf%E8.png',
      'caf%E9.png',
      'café \u{1f600}.png',
      'results.jsonl',
    ]);
    t.is(await charged(), 5);
  },
);

test('two results that the disk takes for one are refused before any is paid', async t => {
  const pairs = [
    ['IMG_1.png', 'img_1.webp', /--full-names/],
    ['IMG_1.png', 'img_1.png', /rename one/],
    ['Caf\u00e9.png', 'cafe\u0301.webp', /--full-names/],
    ['Shelf/1.png', 'shelf/1.webp', /rename one|--full-names/],
  ] as const;
  for (const [number, [one, other, remedy]] of pairs.entries()) {
    const from = `photos${number}`;
    write(`${from}/${one}`, picture(10 * number));
    write(`${from}/${other}`, picture(10 * number + 1));
    const args = [from, '--to', 'out', '--recursive'];
    const to = path.join(command.folder, 'out');
    const refused = await onFoldingDisk(to, () => run(args));
    t.is(refused.code, 64, refused.stderr);
    t.regex(refused.stderr, /photos.* and photos.* would both become /);
    t.regex(refused.stderr, remedy);
    t.is(await charged(), 2 * number);
    // A disk that tells them apart has both.
    t.is((await run(args)).code, 0);
    t.is(await charged(), 2 * (number + 1));
  }
  t.false(filesBelow('out').some(name => name.includes('.part')));
});

test('a picture is no place for a result, and no folder of results is read, in any case', async t => {
  write('out/a.png', picture(1));
  write('out/b/c.png', picture(2));
  const onDisk = (args: string[]) => onFoldingDisk(command.folder, () => run(args));
  const over = await onDisk(['OUT/A.png', '--to', 'out']);
  t.is(over.code, 64, over.stderr);
  t.regex(over.stderr, /would overwrite/);
  const same = await onDisk(['out', '--to', 'Out', '--recursive']);
  t.is(same.code, 64, same.stderr);
  t.regex(same.stderr, /also the folder for the results/);
  t.is(await charged(), 0);
});

test('a name that the disk does not take fails its picture before it is paid', async t => {
  const long = `${'n'.repeat(251)}.png`;
  for (const name of ['12:30:45.png', 'a.png']) write(`photos/${name}`, picture(name.length));
  const to = path.join(command.folder, 'out');
  const colons = await onFoldingDisk(to, () => run(['photos', '--to', 'out']));
  t.is(colons.code, 1);
  t.regex(colons.stderr, /12:30:45\.png: EINVAL: .*the disk does not take its name/);
  t.regex(colons.stdout.toString(), /1 cut out \(1 jobs\), 1 failed/);
  t.is(await charged(), 1);
  write(`photos/${long}`, picture(3));
  const webp = await run(['photos', '--to', 'webp', '--format', 'webp']);
  t.is(webp.code, 1);
  t.regex(webp.stderr, /nnn\.png: ENAMETOOLONG: .*the disk does not take its name/);
  t.deepEqual(filesBelow('webp'), ['photos/12:30:45.webp', 'photos/a.webp', 'results.jsonl']);
  t.is(await charged(), 3);
});

test('folders of thumbnails are skipped and named', async t => {
  write('photos/a.png', picture(1));
  write('photos/@eaDir/a.png/SYNOPHOTO_THUMB_M.jpg', picture(2));
  write('photos/__MACOSX/photos/a.png', picture(3));
  const { code, stdout } = await run(['photos', '--to', 'out', '--recursive']);
  t.is(code, 0);
  t.regex(
    stdout.toString(),
    /1 cut out .*, 2 other files \(photos\/@eaDir, photos\/__MACOSX\) skipped/,
  );
  t.is(await charged(), 1);
  t.is((await run(['photos/@eaDir/a.png', '--to', 'named'])).code, 0);
  t.is(await charged(), 2);
});
