import { TestAuthority } from '@matting/test-support/certificates.ts';
import ava from 'ava';
import { DAY_MS } from '../../durations.ts';
import { endsOfFiles, warnOfEnds } from '../certificate-ends.ts';

const test = ava.serial;

const authority = new TestAuthority();
const NOW_MS = Date.now();
/** The resolution of certificates. */
const SECOND_MS = 1000;

const ending = (days: number) => authority.issue('one', undefined, days * DAY_MS).cert;
const daysOf = (pem: string, holds: 'chain' | 'authorities') =>
  endsOfFiles([['FILE', pem, holds]]).map(({ endMs }) =>
    Math.round((endMs - NOW_MS) / (60 * SECOND_MS) / 60 / 24),
  );

test('a chain ends with its first, a bundle of authorities with its last', t => {
  const both = ending(3) + ending(9);
  t.deepEqual(daysOf(both, 'chain'), [3]);
  t.deepEqual(daysOf(both, 'authorities'), [9]);
  t.deepEqual(daysOf(ending(-2), 'chain'), [-2]);
});

test('a text without a certificate, and a missing one, have no expiry', t => {
  t.deepEqual(daysOf('no PEM', 'chain'), []);
  t.deepEqual(endsOfFiles([['FILE', undefined, 'chain']]), []);
  const broken = '-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n';
  t.deepEqual(daysOf(broken, 'chain'), []);
  t.deepEqual(daysOf(broken + ending(5), 'authorities'), [5]);
});

test('the log has a line for each that ends within 14 days, and for none that has longer', t => {
  const lines: string[] = [];
  const log = {
    warn: (fields: object, message: string) =>
      void lines.push(`${message} ${JSON.stringify(fields)}`),
  };
  const ends = [-1, 13.5, 14, 400].map(days => {
    return { file: `in ${days}`, endMs: NOW_MS + days * DAY_MS };
  });
  warnOfEnds(ends, log, NOW_MS);
  t.deepEqual(
    lines.map(line => line.replace(/"expiresAt":"[^"]+"/, '')),
    [
      'a certificate has expired; renew it {"file":"in -1",}',
      'a certificate expires soon; renew it {"file":"in 13.5",,"daysLeft":13}',
    ],
  );
});
