/** `make chaos` on a Galera cluster and a bucket. Needs: object-storage, removebg, mcp. */
import { GaleraCluster, galeraSkipReason } from '../support/databases/galera-cluster.ts';
import { describeSeveralMachines } from './several-machines.ts';

describeSeveralMachines('a fleet on Galera', galeraSkipReason(), () => GaleraCluster.create());
