/** The service reads only a bounded part of any body. */
import { CHUNKS_READ_MAX, ENDLESS, endless, uploads } from '@matting/core/test/endless-bodies.ts';
import test from 'ava';
import { readRemovebgBody } from './removebg-body.ts';

for (const [what, sent] of ENDLESS) {
  test(`bounds › of endless ${what} no more is read than what is refused`, async t => {
    const { request, read } = endless(sent);
    await t.throwsAsync(readRemovebgBody(request, uploads), { code: 'INVALID_REQUEST' });
    t.true(read() <= CHUNKS_READ_MAX, `${read()} chunks were read`);
  });
}
