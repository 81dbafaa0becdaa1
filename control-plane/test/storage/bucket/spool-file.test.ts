import assert from 'node:assert/strict';
import { createHash, randomBytes } from 'node:crypto';
import { mkdtemp, readdir, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { after, before, describe, it } from 'node:test';
import { SpoolFile } from '../../../src/storage/bucket/spool-file.ts';

const PART_BYTES = 1000;
const sha256 = (bytes: Uint8Array) => createHash('sha256').update(bytes).digest('hex');

describe('a spool file', () => {
  let directory: string;
  before(async () => {
    directory = await mkdtemp(path.join(tmpdir(), 'matting-spool-test-'));
  });
  after(() => rm(directory, { recursive: true, force: true }));

  async function spooled(bytes: Buffer, pieceBytes: number): Promise<SpoolFile> {
    const file = await SpoolFile.open(directory, PART_BYTES);
    for (let at = 0; at < bytes.length; at += pieceBytes) {
      await file.append(bytes.subarray(at, at + pieceBytes));
    }
    return file;
  }

  it('has no name from the moment it is open', async () => {
    const file = await SpoolFile.open(directory, PART_BYTES);
    assert.deepEqual(await readdir(directory), []);
    await file.close();
  });

  it('is refused where it cannot be, with the place in the error', async () => {
    const nowhere = path.join(directory, 'nowhere');
    await assert.rejects(SpoolFile.open(nowhere, PART_BYTES), { code: 'ENOENT' });
  });

  // Around the ends of parts, and pieces that end within, at and beyond them.
  for (const length of [0, 1, 999, 1000, 1001, 2000, 2500, 3000]) {
    for (const pieceBytes of [300, 1000, 2300]) {
      it(`of ${length} bytes in pieces of ${pieceBytes} is what was appended`, async () => {
        const bytes = randomBytes(length);
        const file = await spooled(bytes, pieceBytes);
        assert.equal(file.bytes, length);
        assert.equal(file.sha256(), sha256(bytes));
        assert.deepEqual(await file.read(0, length), bytes);
        const parts = file.parts();
        assert.equal(parts.length, Math.ceil(length / PART_BYTES));
        let at = 0;
        for (const part of parts) {
          assert.equal(part.offset, at);
          const expected = bytes.subarray(at, at + PART_BYTES);
          assert.equal(part.sha256, sha256(expected));
          assert.deepEqual(await file.read(part.offset, part.length), expected);
          at += part.length;
        }
        assert.equal(at, length);
        await file.close();
      });
    }
  }

  it('reads no further than it goes', async () => {
    const bytes = randomBytes(100);
    const file = await spooled(bytes, 100);
    assert.deepEqual(await file.read(90, 100), bytes.subarray(90));
    assert.equal((await file.read(200, 10)).length, 0);
    await file.close();
  });

  it('says its hashes while it grows, without ending', async () => {
    const file = await spooled(Buffer.from('one'), 3);
    assert.equal(file.sha256(), sha256(Buffer.from('one')));
    assert.equal(file.parts()[0]?.sha256, sha256(Buffer.from('one')));
    await file.append(Buffer.from('two'));
    assert.equal(file.sha256(), sha256(Buffer.from('onetwo')));
    await file.close();
  });
});
