export default { files: ['**/*.ts', '!node_modules'], extensions: ['ts'], workerThreads: false, timeout: '10m' };
