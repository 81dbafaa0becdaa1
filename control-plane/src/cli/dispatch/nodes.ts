/** `nodes list|drain|undrain`. */
import type { Command } from 'commander';
import { OperateNodes } from '../../services/operator/operate-nodes.ts';
import { type CliContext, table } from '../context.ts';

interface JsonOption {
  readonly json?: boolean;
}

export function addNodeCommands(program: Command, context: CliContext): void {
  const nodes = program.command('nodes').description('list and drain inference nodes');
  nodes
    .command('list')
    .description('list the nodes that registered, the silent ones too')
    .option('--json', 'print JSON')
    .action((options: JsonOption) => listNodes(context, options));
  for (const command of ['drain', 'undrain'] as const) {
    nodes
      .command(command)
      .description(
        command === 'drain'
          ? 'let a node finish what it has and take nothing new, over restarts too'
          : 'let a drained node take images again',
      )
      .argument('<node>', 'its id')
      .option('--json', 'print JSON')
      .action((node: string, options: JsonOption) => setDraining(context, command, node, options));
  }
}

async function listNodes(context: CliContext, options: JsonOption) {
  const nodes = await context.withStores(stores => new OperateNodes(stores).list());
  context.report(options.json, nodes, () =>
    table(
      ['NODE', 'STATE', 'ADDRESS', 'VERSION', 'LAST HEARTBEAT'],
      nodes.map(node => [node.node_id, node.state, node.address, node.version, node.heartbeat_at]),
    ),
  );
}

async function setDraining(
  context: CliContext,
  command: 'drain' | 'undrain',
  nodeId: string,
  options: JsonOption,
) {
  const draining = command === 'drain';
  const changed = await context.withStores(stores =>
    new OperateNodes(stores).setDraining(nodeId, draining),
  );
  context.report(options.json, changed, () => [
    `node ${nodeId} will ${command} with its next heartbeat`,
  ]);
}
