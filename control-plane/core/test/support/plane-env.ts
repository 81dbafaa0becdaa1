import { TEST_TOKEN } from '@matting/nodes/test/scripted-node.ts';

export function planeEnv(directory: string, databaseUrl: string) {
  return {
    MATTING_DATA_DIR: directory,
    MATTING_DATABASE_URL: databaseUrl,
    MATTING_SECRETS_KEY: 'ab'.repeat(32),
    MATTING_PORT: '0',
    MATTING_REGISTRY_PORT: '0',
    MATTING_METRICS_PORT: '0',
    MATTING_BASE_URL: 'http://links.example',
    MATTING_NODE_TOKEN: TEST_TOKEN,
  };
}
