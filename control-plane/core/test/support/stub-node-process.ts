/** Holds its images until SIGUSR2; prints `<job> <fence>`. */
import { ScriptedNode } from '@matting/nodes/test/scripted-node.ts';

const [nodeId = '', registryPort] = process.argv.slice(2);
const goOn = Promise.withResolvers<void>();
process.on('SIGUSR2', () => goOn.resolve());
const node = await ScriptedNode.start({
  nodeId,
  imagesMax: 2,
  script: async exchange => {
    process.stdout.write(`${exchange.header.jobId} ${exchange.header.attempt}\n`);
    exchange.admit();
    const input = await exchange.receive();
    await goOn.promise;
    exchange.answer(input);
  },
});
await node.join(Number(registryPort));
process.stdout.write('joined\n');
