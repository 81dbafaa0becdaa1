/** Other packages use these of secrets: what seals them, and the key in the data directory. */
export {
  accountSecretId,
  CallbackSecrets,
  mailBody,
  notificationBody,
  SecretBox,
} from './secret-box.ts';
export {
  createSecretsCanaryStore,
  judgeSecretsKey,
  parseSecretsKey,
  readSecretsKey,
  SECRETS_KEY_FILE,
} from './secrets-key.ts';
