// SPDX-License-Identifier: GPL-2.0-only
/*
 * Two PCI functions with the ids of NVIDIA A100 on a bus of their own, in domain 0x1000 and on NUMA node 0.
 *
 * QEMU has no device with NVIDIA's ids. These have nothing but the head of a configuration space: no memory, no interrupt.
 * That is enough for the kernel to list them, to look for their driver, and to bind it.
 *
 * Copyright (c) 2026 The hpcai.gpu_cluster developers
 */
#include <linux/module.h>
#include <linux/pci.h>
#include <linux/string.h>

#define LAB_DOMAIN 0x1000
#define LAB_GPUS 2
#define LAB_A100 0x20b0
#define LAB_3D_CONTROLLER (PCI_CLASS_DISPLAY_3D << 8)

static int lab_read(struct pci_bus *bus, unsigned int devfn, int where, int size, u32 *value)
{
	u32 word = 0;

	*value = ~0U;
	if (bus->number || PCI_FUNC(devfn) || PCI_SLOT(devfn) >= LAB_GPUS)
		return PCIBIOS_DEVICE_NOT_FOUND;
	switch (where & ~3) {
	case PCI_VENDOR_ID:
		word = LAB_A100 << 16 | PCI_VENDOR_ID_NVIDIA;
		break;
	case PCI_CLASS_REVISION:
		word = LAB_3D_CONTROLLER << 8 | 0xa1;
		break;
	case PCI_SUBSYSTEM_VENDOR_ID:
		word = LAB_A100 << 16 | PCI_VENDOR_ID_NVIDIA;
		break;
	}
	word >>= (where & 3) * 8;
	*value = size == 4 ? word : word & ((1U << size * 8) - 1);
	return PCIBIOS_SUCCESSFUL;
}

static int lab_write(struct pci_bus *bus, unsigned int devfn, int where, int size, u32 value)
{
	return PCIBIOS_SUCCESSFUL;
}

static struct pci_ops lab_ops = { .read = lab_read, .write = lab_write };
static struct pci_sysdata lab_sysdata = { .domain = LAB_DOMAIN };
static struct pci_bus *lab_bus;

static int __init lab_init(void)
{
	LIST_HEAD(resources);

	lab_bus = pci_scan_root_bus(NULL, 0, &lab_ops, &lab_sysdata, &resources);
	if (!lab_bus)
		return -ENODEV;
	pci_bus_add_devices(lab_bus);
	return 0;
}

static void __exit lab_exit(void)
{
	pci_stop_root_bus(lab_bus);
	pci_remove_root_bus(lab_bus);
}

module_init(lab_init);
module_exit(lab_exit);
MODULE_DESCRIPTION("Two PCI functions with the ids of NVIDIA A100, for tests");
MODULE_LICENSE("GPL");
