/** Replicas of one database share one secrets key: another one does not come up. */
import assert from 'node:assert/strict';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { after, before, it } from 'node:test';
import pino from 'pino';
import { describeOnDatabases, useTestDatabase } from '../../../test/support/database.ts';
import { type ControlPlane, openControlPlane } from '../../src/compose.ts';
import { loadConfig } from '../../src/config.ts';
import { SecretsKeyError } from '../../src/secrets/secrets-key.ts';
import { planeEnv } from '../support/child.ts';

const KEYS = ['ab'.repeat(32), 'cd'.repeat(32)] as const;

describeOnDatabases('replicas', dialect => {
  const databases = useTestDatabase(dialect, { migrated: false });
  let directory: string;
  const running: ControlPlane[] = [];

  before(async () => {
    directory = await mkdtemp(path.join(tmpdir(), 'secrets-key-'));
  });
  after(async () => {
    await Promise.all(running.map(replica => replica.drain(AbortSignal.abort())));
    await rm(directory, { recursive: true });
  });

  async function start(secretsKey: string, previous?: string): Promise<void> {
    const config = loadConfig({
      ...planeEnv(directory, databases.url()),
      MATTING_SECRETS_KEY: secretsKey,
      MATTING_SECRETS_KEY_PREVIOUS: previous,
    });
    const log = pino({ level: 'silent' });
    running.push(await openControlPlane(config, log, `replica-${running.length}`));
  }

  const isAboutTheKey = (error: unknown) => {
    assert.ok(error instanceof SecretsKeyError, String(error));
    assert.match(error.message, /^MATTING_SECRETS_KEY is not the key/);
    for (const key of KEYS) assert.ok(!error.message.includes(key));
    return true;
  };

  it('with another key than the first one do not start; with the same they do', async () => {
    await start(KEYS[0]);
    await assert.rejects(start(KEYS[1]), isAboutTheKey);
    await start(KEYS[0]);
    assert.equal(running.length, 2);
  });

  it('that have all stopped left their key behind', async () => {
    for (const replica of running.splice(0)) await replica.drain(AbortSignal.abort());
    await assert.rejects(start(KEYS[1]), isAboutTheKey);
    await start(KEYS[0]);
  });

  it('change their key with the one before it beside the new one, and not back', async () => {
    await assert.rejects(start(KEYS[1], 'ef'.repeat(32)), isAboutTheKey);
    await start(KEYS[1], KEYS[0]);
    await start(KEYS[1], KEYS[0]);
    await start(KEYS[1]);
    await assert.rejects(start(KEYS[0]), isAboutTheKey);
  });
});
