/** The doctor tries whether the key of this control plane opens what the database holds. */
import path from 'node:path';
import { SecretBox } from '@matting/core/secrets/secret-box.ts';
import {
  judgeSecretsKey,
  readSecretsKey,
  SECRETS_KEY_FILE,
} from '@matting/core/secrets/secrets-key.ts';
import type { CoreSettings } from '@matting/core/settings.ts';
import type { StoresWithoutEnds } from '@matting/core/stores.ts';
import { type Finding, failure, ok, warning } from '@matting/program/doctor/findings.ts';

const SUBJECT = 'secrets';
const CHANGING = 'docs/operate.md, "Change the secrets key"';

export async function secretsKeyFindings(
  { secretsCanary, outbox }: Pick<StoresWithoutEnds, 'secretsCanary' | 'outbox'>,
  { secretsKey: given, secretsKeyPrevious, dataDir }: CoreSettings,
): Promise<readonly Finding[]> {
  const canary = await secretsCanary.find();
  const key = given ?? (await readSecretsKey(dataDir));
  const file = path.join(dataDir, SECRETS_KEY_FILE);
  if (key === undefined) {
    const found = `no key: neither MATTING_SECRETS_KEY nor ${file}`;
    // The first start makes a key, if no other key has sealed anything.
    if (canary === undefined) return [ok(SUBJECT, `${found}; the first start creates one`)];
    return [failure(SUBJECT, found, 'restore the key that this database was used with')];
  }
  const keys = [key, ...(secretsKeyPrevious === undefined ? [] : [secretsKeyPrevious])];
  const verdict = canary === undefined ? 'same' : judgeSecretsKey(canary, key, secretsKeyPrevious);
  if (verdict === 'other') {
    const found = 'MATTING_SECRETS_KEY is not the key this database was last used with';
    return [
      failure(
        SUBJECT,
        found,
        `set the right key; no control plane starts with this one: ${CHANGING}`,
      ),
    ];
  }
  const unopened = await outbox.countSealedWithOthers(keys.map(one => new SecretBox(one).keyId));
  if (unopened > 0) {
    const found = `no key opens the secrets of ${unopened} waiting notifications`;
    return [warning(SUBJECT, found, `set MATTING_SECRETS_KEY_PREVIOUS: ${CHANGING}`)];
  }
  return [ok(SUBJECT, 'the key opens what the database holds')];
}
