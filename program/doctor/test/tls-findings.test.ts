/** Certificates that are good, near their end, over, or do not fit together. */
import { writeFile } from 'node:fs/promises';
import path from 'node:path';
import ava from 'ava';
import { TestAuthority } from '../../../test/support/certificates.ts';
import { temporaryFolder } from '../../../test/support/temporary-folder.ts';
import type { TlsSettings } from '../../tls/tls-settings.ts';
import { tlsFindings } from '../tls-findings.ts';

const test = ava.serial;

const DAY_MS = 86_400_000;
const NOTHING: TlsSettings = {
  identity: undefined,
  clientCaFile: undefined,
  serverCaFile: undefined,
  serverName: undefined,
};

const directory = await temporaryFolder({ teardown: test.after.always });
let settings: TlsSettings;
const at = (name: string) => path.join(directory, name);

test.before(async () => {
  // Its certificates are good for a day.
  const authority = new TestAuthority();
  const { cert, key } = authority.issue('node');
  await writeFile(at('cert.pem'), cert + authority.cert);
  await writeFile(at('key.pem'), key);
  await writeFile(at('other.pem'), authority.issue('other').key);
  await writeFile(at('ca.pem'), authority.cert);
  const identity = { certFile: at('cert.pem'), keyFile: at('key.pem') };
  settings = { ...NOTHING, identity, serverCaFile: at('ca.pem') };
});

const statuses = async (given: TlsSettings, nowMs?: number) =>
  (await tlsFindings(given, nowMs)).map(({ status }) => status);

test('is ok where no TLS is asked for', async t => {
  t.deepEqual(await statuses(NOTHING), ['ok']);
});

test('warns a fortnight before the end, and fails behind it', async t => {
  t.deepEqual(await statuses(settings, Date.now() - 30 * DAY_MS), ['ok', 'ok']);
  t.deepEqual(await statuses(settings), ['warning', 'warning']);
  t.deepEqual(await statuses(settings, Date.now() + 2 * DAY_MS), ['failure', 'failure']);
});

test('fails where files do not fit together, and names the variable', async t => {
  const identity = { certFile: at('cert.pem'), keyFile: at('other.pem') };
  const [finding, ...more] = await tlsFindings({ ...settings, identity });
  t.is(finding?.status, 'failure');
  t.regex(finding?.found ?? '', /^MATTING_TLS_KEY_FILE: is not the key/);
  t.deepEqual(more, []);
});
