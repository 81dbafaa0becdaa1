/** `make chaos` on MySQL Group Replication and a bucket. Needs: object-storage, removebg, mcp. */
import { groupSkipReason, ReplicationGroup } from '../support/databases/group-replication.ts';
import { describeSeveralMachines } from './several-machines.ts';

describeSeveralMachines('a fleet on Group Replication', groupSkipReason(), () =>
  ReplicationGroup.create('single-primary'),
);
