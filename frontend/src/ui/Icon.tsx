// Line icons. They are decoration: words next to them always give the meaning too.
import {
  ChartPie,
  ChevronRight,
  CodeXml,
  Copy,
  HardDrive,
  KeyRound,
  List,
  ListEnd,
  ListTree,
  LogOut,
  Moon,
  Pause,
  Pencil,
  Play,
  Plus,
  Search,
  Server,
  Shield,
  Square,
  Sun,
  Table2,
  TriangleAlert,
  Upload,
  Users,
  Waves,
  X,
} from "lucide-react";

const ICONS = {
  wave: Waves,
  jobs: List,
  queue: ListEnd,
  machines: Server,
  shares: ChartPie,
  disk: HardDrive,
  people: Users,
  shield: Shield,
  key: KeyRound,
  code: CodeXml,
  moon: Moon,
  sun: Sun,
  exit: LogOut,
  plus: Plus,
  search: Search,
  pause: Pause,
  play: Play,
  stop: Square,
  copy: Copy,
  pencil: Pencil,
  close: X,
  chevron: ChevronRight,
  warning: TriangleAlert,
  upload: Upload,
  table: Table2,
  tree: ListTree,
} as const;

export type IconName = keyof typeof ICONS;

export function Icon({ name }: { name: IconName }) {
  const Lines = ICONS[name];
  return <Lines className="icon" aria-hidden="true" focusable="false" />;
}
