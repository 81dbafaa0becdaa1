/** `nodes list|drain|undrain`. */
import type { Command } from 'commander';
import type { NodeMember } from '../store/node-store.ts';
import { type CliContext, CommandError, instant, table } from './context.ts';

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
  const members = await context.withStores(stores => stores.nodes.listAll());
  context.report(options.json, members.map(nodeJson), () =>
    table(
      ['NODE', 'STATE', 'ADDRESS', 'VERSION', 'LAST HEARTBEAT'],
      members.map(member => [
        member.nodeId,
        stateOf(member),
        member.address,
        member.version,
        instant(member.heartbeatAtMs),
      ]),
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
  const known = await context.withStores(stores => stores.nodes.setDraining(nodeId, draining));
  if (!known) throw new CommandError(`there is no node "${nodeId}"`);
  context.report(options.json, { node_id: nodeId, draining }, () => [
    `node ${nodeId} is told to ${command} with its next heartbeat`,
  ]);
}

function stateOf(member: NodeMember): string {
  if (!member.live) return 'silent';
  return member.draining ? 'draining' : 'live';
}

function nodeJson(member: NodeMember) {
  return {
    node_id: member.nodeId,
    state: stateOf(member),
    draining: member.draining,
    address: member.address,
    http_address: member.httpAddress === '' ? null : member.httpAddress,
    version: member.version,
    registered_at: instant(member.registeredAtMs),
    heartbeat_at: instant(member.heartbeatAtMs),
  };
}
