import type { Command } from 'commander';
import { OperateNodes } from '../operator/operate-nodes.ts';
import { type CliContext, table } from './context.ts';

export function addNodeCommands(program: Command, context: CliContext): void {
  const nodes = program.command('nodes').description('list and drain inference nodes');
  nodes
    .command('list')
    .description('list the registered nodes, whether they get images, and why not')
    .action(async () => {
      const all = await context.withStores(stores => new OperateNodes(stores).list());
      context.report(all, () =>
        table(
          [
            'NODE',
            'STATE',
            'ADDRESS',
            'VERSION',
            'RUNS ON',
            'LAST HEARTBEAT',
            'NO JOBS FOR',
            'CAUSE',
          ],
          all.map(node => [
            node.node_id,
            node.state,
            node.address,
            node.version,
            node.runs_on ?? '-',
            node.heartbeat_at,
            node.models_left_out.join(', ') || '-',
            node.cause ?? '-',
          ]),
        ),
      );
    });
  for (const command of ['drain', 'undrain'] as const) {
    nodes
      .command(command)
      .description(
        command === 'drain'
          ? 'let a node finish its images and take no new ones, even after a restart'
          : 'let a drained node take images again',
      )
      .argument('<node>', 'id of the node')
      .action(async (node: string) => {
        const changed = await context.withStores(stores =>
          new OperateNodes(stores).setDraining(node, command === 'drain'),
        );
        context.report(changed, () => [`node ${node} will ${command} at its next heartbeat`]);
      });
  }
}
