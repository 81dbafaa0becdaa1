/** Certificates that are good, near their end, over, or do not fit together. */
import assert from 'node:assert/strict';
import { writeFile } from 'node:fs/promises';
import path from 'node:path';
import { after, before, it } from 'node:test';
import { TestAuthority } from '../../../test/support/certificates.ts';
import { temporaryFolder } from '../../../test/support/temporary-folder.ts';
import type { TlsSettings } from '../../tls/tls-settings.ts';
import { tlsFindings } from '../tls-findings.ts';

const DAY_MS = 86_400_000;
const NOTHING: TlsSettings = {
  identity: undefined,
  clientCaFile: undefined,
  serverCaFile: undefined,
  serverName: undefined,
};

const directory = await temporaryFolder({ after });
let settings: TlsSettings;
const at = (name: string) => path.join(directory, name);

before(async () => {
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

it('is ok where no TLS is asked for', async () => {
  assert.deepEqual(await statuses(NOTHING), ['ok']);
});

it('warns a fortnight before the end, and fails behind it', async () => {
  assert.deepEqual(await statuses(settings, Date.now() - 30 * DAY_MS), ['ok', 'ok']);
  assert.deepEqual(await statuses(settings), ['warning', 'warning']);
  assert.deepEqual(await statuses(settings, Date.now() + 2 * DAY_MS), ['failure', 'failure']);
});

it('fails where files do not fit together, and names the variable', async () => {
  const identity = { certFile: at('cert.pem'), keyFile: at('other.pem') };
  const [finding, ...more] = await tlsFindings({ ...settings, identity });
  assert.equal(finding?.status, 'failure');
  assert.match(finding?.found ?? '', /^MATTING_TLS_KEY_FILE: is not the key/);
  assert.deepEqual(more, []);
});
